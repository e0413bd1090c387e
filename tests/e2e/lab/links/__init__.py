"""Links between namespaces that lose and change frames."""
