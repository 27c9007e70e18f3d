"""What runs inside of a sandbox: started by path with whatever interpreter is there, so it imports nothing of ours."""
