"""The contract suite every store passes, one module a subject, named as sentences.

A store's test module says `from hipq.testing.contract.suite import *` and gives two fixtures, `database` and
`empty_database` (`database.py` says what they must do); tests/conftest.py makes the others from them.
"""
