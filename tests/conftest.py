"""What all tests share."""

from hypothesis import settings

# The same examples on every machine, so that a test that begins to fail tells of a change, and never of a busy machine; what nobody
# has thought of is looked for by test_fuzz.py for as long as one likes. Nothing is remembered in the checkout.
settings.register_profile("ctrflow", deadline=None, derandomize=True, database=None)
settings.load_profile("ctrflow")
