"""Processes of brokers: started in an interpreter of their own or as forks, and watched until they end."""
