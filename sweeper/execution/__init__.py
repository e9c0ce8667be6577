"""Runs a plan: controller, pools, group runner, load generator."""
