"""The benchmark behind `rlscan bench`: every estimator over a grid of shapes, right first and then timed, beside its peers.

cases → checked against the float64 oracle → timed → JSON → table, plots

cases     what is run: inputs, the bytes that there are at least, exact results
clock     how a call is timed
scans     the estimators in plain torch, over any way to scan
peers     who else is timed, each in the dtypes and the layout that it takes
harness   the run itself
report    the table on screen;  plots: the pictures;  tune: the best tile of each kernel on this GPU
"""
