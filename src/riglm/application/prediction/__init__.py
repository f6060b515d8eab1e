"""What comes next: learned from calls and contexts, on threads of its own."""
