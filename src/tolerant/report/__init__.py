"""Tables and figures from stored rows, with the paper's numbers beside ours."""
