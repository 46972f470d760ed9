"""Workers on other machines: what their hosts and the manager that leads say to each other, and the agent of a host."""
