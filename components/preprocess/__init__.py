"""The preprocess step: raw click logs into a verified, shuffled, split dataset."""
