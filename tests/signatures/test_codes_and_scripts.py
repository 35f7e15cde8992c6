"""Codes belong to the error in any script, values do not."""

# ruff: noqa: RUF001 - scripts with signs and digits of their own

from __future__ import annotations

from itertools import combinations

import pytest

from toolkit.signatures.signing import error_signatures

STATES = ("57014", "40P01", "25P02", "23505", "42P01")


@pytest.mark.parametrize(
    "messages",
    [
        [f"error {state}: the query ended" for state in STATES],
        [
            f"[{code}] query {number} failed"
            for number, code in enumerate(("42P01", "P2024", "HY000", "E1001"))
        ],
        [f"the pool is exhausted ({code})" for code in ("P1001", "P2024", "P2034")],
        [f"E10{number}1: cart {number} was refused" for number in range(8)],
        [
            f"rpc error: code = {code} desc = node {n}"
            for n, code in enumerate(("Internal", "Aborted", "NotFound"))
        ],
        [
            f'10.0.0.{n} "POST /carts/{n} HTTP/1.1" {status} 12{n}'
            for n, status in enumerate((500, 502, 429))
        ],
        [f'{{"code": "{state}", "message": "the query ended"}}' for state in STATES],
        ["결제 오류(코드 4001): 주문 12", "결제 오류(코드 4002): 주문 12"],
        ["支付失败，错误码4001，订单7", "支付失败，错误码4002，订单7"],
    ],
)
def test_another_code_is_another_error(messages):
    """Messages that differ by their codes are as many groups as there are codes."""
    assert len(set(error_signatures(messages))) == len(messages)


@pytest.mark.parametrize(
    "messages",
    [
        ["订单A-12-99库存不足", "订单B-7-1库存不足", "订单C-9库存不足"],
        ["主机１０.０.０.１无法访问", "主机10.0.0.7无法访问"],
        ["注文３４は売り切れです", "注文9は売り切れです"],
        ["ไม่พบคำสั่งซื้อ๑๒ในระบบ", "ไม่พบคำสั่งซื้อ9001ในระบบ"],
        ["فشل الطلب رقم ١٢٣", "فشل الطلب رقم 9"],
        ["ההזמנה 3 לא נמצאה", "ההזמנה 6150 לא נמצאה"],
        ["[12345] worker stopped", "[881] worker stopped"],
        ["order (12345) is gone", "order (7) is gone"],
    ],
)
def test_another_value_is_the_same_error(messages):
    """Numbers and ids are values in scripts with other digits, and in sentences without spaces."""
    assert len(set(error_signatures(messages))) == 1


def test_sentences_of_one_script_stay_apart():
    """A sentence without spaces is never a value as a whole."""
    sentences = [
        "订单7库存不足",
        "订单7支付超时",
        "ユーザー7が見つかりません",
        "在庫が不足しています（商品7）",
    ]
    for one, other in combinations(error_signatures(sentences), 2):
        assert one != other
