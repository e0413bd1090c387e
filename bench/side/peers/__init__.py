"""What is measured: mmb in memory and the programs beside it, and the rules and frames that all of them get."""
