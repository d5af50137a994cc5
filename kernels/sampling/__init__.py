"""The next token of each row, chosen on the device."""
