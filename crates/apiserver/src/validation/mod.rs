//! What is wrong with values that many kinds have: names, labels, quantities, ports, references.
