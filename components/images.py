"""The two images of ctrflow, by name and version.

"python" stands in the names because kfp's local runner warns about images that do not look like Python ones.
"""

VERSION = "0.1.0"
STEPS = f"ctrflow/python-steps:{VERSION}"
TRAINING = f"ctrflow/python-training:{VERSION}"
