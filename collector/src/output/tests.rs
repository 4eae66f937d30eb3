//! Every format, of one profile made for the test, against golden text.
