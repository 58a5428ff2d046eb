"""Checks that load the hardware: how fast is it?"""
