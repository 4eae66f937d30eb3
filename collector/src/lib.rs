//! Reads recordings and writes profiles.
