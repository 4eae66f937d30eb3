//! `/tmp/perf-PID.map`: the symbols of code that a process made at run time, taken along because
//! the file, or its pid, may mean something else later.
//!
//! Not here: whose file is believed ([`crate::jit_map`]), and what the lines say.

use super::turn::{Progress, Turn};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Take};

/// Longest piece: a record holds it with room to spare.
const PIECE: usize = 60 << 10;

/// A map on its way into the recording.
#[derive(Debug)]
pub struct Map<R = Take<File>> {
    file: BufReader<R>,
    size: usize,
    piece: Vec<u8>,
}

impl Map {
    /// Of a file that is believed.
    pub fn new(file: Take<File>) -> Self {
        Self::in_pieces(file, PIECE)
    }
}

impl<R: Read> Map<R> {
    fn in_pieces(file: R, size: usize) -> Self {
        Self {
            file: BufReader::new(file),
            size,
            piece: Vec::new(),
        }
    }

    /// Gives it to `sink` in pieces of whole lines, as far as it gets in a turn; one piece at
    /// least. A line that does not fit a piece is left out, as is a last one without its end.
    ///
    /// # Errors
    /// What `sink` says.
    pub fn take(
        &mut self,
        turn: Turn,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Progress> {
        let mut line = Vec::new();
        loop {
            line.clear();
            // A file that cannot be read any further ends here.
            let length = (&mut self.file)
                .take(self.size as u64)
                .read_until(b'\n', &mut line)
                .unwrap_or(0);
            if length == 0 {
                break;
            }
            if !line.ends_with(b"\n") {
                let _ = self.file.skip_until(b'\n');
                continue;
            }
            let full = self.piece.len() + length > self.size;
            if full {
                sink(&self.piece)?;
                self.piece.clear();
            }
            self.piece.extend_from_slice(&line);
            if full && turn.is_over() {
                return Ok(Progress::Begun);
            }
        }
        if !self.piece.is_empty() {
            sink(&self.piece)?;
            self.piece.clear();
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut map = Map::in_pieces(text, size);
        let mut sink = |piece: &[u8]| {
            found.push(piece.to_vec());
            Ok(())
        };
        // However short its turns are.
        while map.take(Turn::over(), &mut sink).unwrap() == Progress::Begun {}
        found
    }

    #[test]
    fn pieces_are_whole_lines_in_order() {
        let text: Vec<u8> = (0..1000)
            .flat_map(|line| format!("{line:x} 10 function_{line}\n").into_bytes())
            .collect();
        let found = cut(&text, 256);
        assert!(found.len() > 50);
        assert!(
            found
                .iter()
                .all(|piece| piece.len() <= 256 && piece.ends_with(b"\n"))
        );
        assert_eq!(found.concat(), text);
    }

    #[test]
    fn a_line_that_fits_no_piece_and_one_without_its_end_are_left_out() {
        let long = [b"1 2 ".to_vec(), vec![b'x'; 100], b"\n".to_vec()].concat();
        let text = [b"1 2 a\n".to_vec(), long, b"3 4 b\n5 6 c".to_vec()].concat();
        assert_eq!(cut(&text, 32), [b"1 2 a\n3 4 b\n".to_vec()]);
    }
}
