package main

func inC(turns int) int { return turns }
