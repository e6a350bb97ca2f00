"""The numbers that the paper reports, to stand beside ours. They are the published ones, not measured here."""

SOURCE = "A. Mnih, D. J. Rezende: Variational Inference for Monte Carlo Objectives. ICML 2016."
DATA = "binarized-mnist"

# Table 1: negative log-likelihood on the test set in nats, 1000 proposal samples an image; by (estimator, K).
TABLE_1: dict[tuple[str, int], float] = {
    ("nvil", 1): 95.2,
    ("vimco", 2): 93.5,
    ("nvil", 2): 93.6,
    ("rws", 2): 94.6,
    ("vimco", 5): 92.8,
    ("nvil", 5): 93.7,
    ("rws", 5): 93.4,
    ("vimco", 10): 92.6,
    ("nvil", 10): 93.4,
    ("rws", 10): 93.0,
    ("vimco", 50): 91.9,
    ("nvil", 50): 96.2,
    ("rws", 50): 92.5,
}

# Sec. 5.2: two layers, K = 20, 100 samples from the proposal that the model was trained with; by (estimator, proposal).
STRUCTURED_NLL: dict[tuple[str, str], float] = {("vimco", "prior"): 56.5, ("vimco", "learned"): 46.1}

# The best result before, of the same model with a biased estimator (Raiko et al.), as Sec. 5.2 quotes it.
RAIKO = 53.8
