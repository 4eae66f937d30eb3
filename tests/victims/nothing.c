// A library that does nothing: what the loader alone takes for one.
int nothing_is_here;
