"""A client of Allotment's REST API: standard library only, so that any machine can use it.

    from client import Client

    allotment = Client("http://127.0.0.1:8000", token="…")
    job = allotment.submit(budget="orlo/science/petrel", name="train", kind="training", gpus=8)
    print(allotment.show(job["id"])["outlook"])

On the command line: `python -m client --help`.
"""

from client.api import Client, Problem, token_for

__all__ = ["Client", "Problem", "token_for"]
