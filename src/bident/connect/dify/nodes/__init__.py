"""What runs in Dify's code nodes: modules that stand alone, which ``bident connect dify`` writes into workflows.

They run in Dify's sandbox, on the standard library alone. Each has a ``PLAN`` that is filled in for one model.
"""
