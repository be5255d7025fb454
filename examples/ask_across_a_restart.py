"""A question is asked, the node is killed and started again, and the answer arrives.

python ask_across_a_restart.py DIRECTORY
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from relaymesh import Mesh


def start_node(directory):
    """`relaymesh serve` prints one line when it is ready."""
    command = ["relaymesh", "serve", "--dir", directory, "--port", "0"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    print("node:", node.stdout.readline().strip())
    return node


def main():
    directory = sys.argv[1]
    node = start_node(directory)
    try:
        with Mesh(directory) as mesh, ThreadPoolExecutor() as pool:  # the node has the directory: it is used
            planner, coder = mesh.agent("planner"), mesh.agent("coder")
            asking = pool.submit(planner.ask, "coder", "are the tests green?", timeout=120)

            question = coder.receive(timeout=60)
            print("asked:", question.content)

            node.kill()
            node.wait()
            print("the node was killed")
            node = start_node(directory)

            coder.answer(question, "green")  # the lease outlived the node
            print("answered:", asking.result().content)
    finally:
        node.terminate()
        node.wait()


if __name__ == "__main__":
    main()
