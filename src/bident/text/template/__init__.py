"""Go's text/template, as far as the TEMPLATE of a Modelfile uses it: written, read and carried out in Python.

``conversation`` is the way in; ``parser`` reads a template, ``evaluation`` carries it out within limits.
"""
