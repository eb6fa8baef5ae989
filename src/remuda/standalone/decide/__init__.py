"""What the control plane's own controllers decide. Pure: the world comes in, actions with their reasons go out."""
