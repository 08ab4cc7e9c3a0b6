"""These files run another project's tests in a process of their own; the tests here do not collect them."""

collect_ignore_glob = ["*"]
