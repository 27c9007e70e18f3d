"""Model folders in Hugging Face layout: making small ones, and telling whether a folder is one."""
