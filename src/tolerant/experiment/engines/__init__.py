"""Where runs happen: side by side on one device of this process, in processes, or as tasks of Ray."""
