"""A worker: books orders, asks the payment service, and tells the customer.

python orders.py DIRECTORY
"""

import sys

from relaymesh import Mesh, NoAnswer, Reject, Retry


def start(mesh, pay):
    """Handle orders on this mesh. `pay(order)` charges the customer and returns a receipt number."""
    shop = mesh.agent("shop")
    mesh.agent("customer")

    @mesh.on(
        "orders", "booking", max_retries=5, contract={ValueError: Reject, ConnectionError: Retry(times=5)}
    )
    def book(delivery):
        order = delivery.content
        if order["amount"] <= 0:
            raise ValueError(f"an order of {order['amount']}")  # the contract says: a dead letter, now
        number = pay(order)  # a ConnectionError is tried again with backoff, five times
        shop.send(
            order["customer"],
            {"order": order["id"], "receipt": number},
            id=f"booked-{order['id']}",  # done twice, it is sent once
            task=f"order-{order['id']}",
        )

    return book


def approve(mesh, order, timeout=3600):
    """Ask a manager about a large order. Nobody answers in time: it is not approved."""
    try:
        return mesh.agent("shop").ask("manager", {"approve": order}, timeout=timeout).content is True
    except NoAnswer:
        return False


def main():
    with Mesh(sys.argv[1]) as mesh:
        start(mesh, pay=lambda order: f"R{order['id']}")
        mesh.run()


if __name__ == "__main__":
    main()
