# The public names and where they are defined: the one list, for type checkers and for __init__.py.

from toolkit.snapshots.erasing import erase_failures as erase_failures
from toolkit.snapshots.exporting import export_vectors as export_vectors
from toolkit.snapshots.opening import Snapshot as Snapshot
from toolkit.snapshots.opening import facts_of_relation as facts_of_relation
from toolkit.snapshots.opening import open_snapshot as open_snapshot
from toolkit.snapshots.reading import Verification as Verification
from toolkit.snapshots.reading import read_snapshot as read_snapshot
from toolkit.snapshots.reading import verify_snapshot as verify_snapshot
from toolkit.snapshots.row_groups import RowGroup as RowGroup
from toolkit.snapshots.syncing import Changes as Changes
from toolkit.snapshots.syncing import sync_failures as sync_failures
from toolkit.snapshots.workers import check_versions as check_versions
from toolkit.snapshots.writing import write_snapshot as write_snapshot
