//! [`Section::verify`]: the thorough check that [`Section::new`] leaves out.

use crate::{Error, Function, Section};

impl Section<'_> {
    /// Reads every function and every row, and checks that they are in order.
    ///
    /// # Errors
    /// The first thing found wrong: any error of a look-up, [`Error::NotSorted`],
    /// [`Error::BadRowStart`], [`Error::BadRowTotal`].
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else; in a time proportional to their number.
    pub fn verify(&self) -> Result<(), Error> {
        let mut total = 0_u64;
        let mut previous = None;
        for function in self.functions() {
            let function = function?;
            let start = function.start().distance_from(self.address());
            if self.header().is_sorted() && previous.is_some_and(|previous| previous > start) {
                return Err(Error::NotSorted {
                    offset: function.entry_offset(),
                });
            }
            previous = Some(start);
            verify_rows(&function)?;
            total = total.wrapping_add(u64::from(function.row_count()));
        }
        let count = self.header().rows;
        if total == u64::from(count) {
            Ok(())
        } else {
            Err(Error::BadRowTotal { offset: 12, count })
        }
    }
}

fn verify_rows(function: &Function<'_>) -> Result<(), Error> {
    let limit = function
        .rep_size()
        .map_or(function.size(), |size| u32::from(size.get()));
    let mut previous = None;
    let mut rows = function.rows();
    loop {
        let offset = rows.offset();
        let Some(row) = rows.next() else {
            return Ok(());
        };
        let (start, _) = row?;
        // An empty function has rows too: a row at its start is in order.
        if previous.is_some_and(|previous| previous >= start) || start >= limit.max(1) {
            return Err(Error::BadRowStart { offset, start });
        }
        previous = Some(start);
    }
}
