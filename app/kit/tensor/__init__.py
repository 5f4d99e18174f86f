"""The selected tensor, the tensor table and the plan drawing."""
