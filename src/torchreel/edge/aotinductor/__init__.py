"""Packages of AOTInductor."""
