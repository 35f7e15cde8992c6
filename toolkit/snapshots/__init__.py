"""snapshots"""
