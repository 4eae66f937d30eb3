//! The tables.

/// The statements that make them.
const SCHEMA: &str = include_str!("schema.sql");

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    Frames,
    Stacks,
    Windows,
    Samples,
}

impl Table {
    /// In the order in which they are filled: what rows refer to is there before.
    pub(crate) const ALL: [Self; 4] = [Self::Frames, Self::Stacks, Self::Windows, Self::Samples];

    /// What it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Frames => "rsunwind_frames",
            Self::Stacks => "rsunwind_stacks",
            Self::Windows => "rsunwind_windows",
            Self::Samples => "rsunwind_samples",
        }
    }

    /// The same with the columns of what is sent, where they are not all.
    pub(crate) const fn columns(self) -> &'static str {
        match self {
            Self::Stacks => "rsunwind_stacks (service, frames)",
            _ => self.name(),
        }
    }

    /// Whether equal rows of a service have equal hashes, so that each needs to be sent once.
    pub(crate) const fn is_by_hash(self) -> bool {
        matches!(self, Self::Frames | Self::Stacks)
    }
}

/// The statements that make the tables, each alone.
pub(crate) fn statements() -> Vec<String> {
    let lines = SCHEMA.lines().map(|line| match line.find("--") {
        Some(comment) => line.get(..comment).unwrap_or_default(),
        None => line,
    });
    let plain = lines.collect::<Vec<_>>().join("\n");
    let statements = plain.split(';').map(str::trim);
    let statements = statements.filter(|one| !one.is_empty());
    statements.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_statement_for_each_table() {
        let all = statements();
        assert_eq!(all.len(), Table::ALL.len());
        for table in Table::ALL {
            let begins = format!("CREATE TABLE IF NOT EXISTS {} (", table.name());
            assert!(all.iter().any(|one| one.starts_with(&begins)), "{table:?}");
        }
        assert!(!all.concat().contains("--"));
    }
}
