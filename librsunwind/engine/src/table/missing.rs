//! What a table says where it has no rule.

/// Why a table has no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No row covers the pc.
    NoRow,
    /// The table is damaged, or uses what we do not know.
    BadTable,
}
