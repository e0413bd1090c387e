"""Links that are not plain pairs: they lose and change frames, tag them, or lead to a virtual machine."""
