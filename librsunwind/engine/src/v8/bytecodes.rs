//! How long bytecodes are, in each version, by their numbers.

use super::bytes::Bytes;
use crate::interpreter::memory::Memory;
use core::ops::Range;

/// How long each bytecode is with operands of usual width, and of twice that; as digits. A few of a
/// bytecode's bytes may not become more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// See there.
    pub usual: &'static [u8],
    /// See there.
    pub twice: &'static [u8],
}

impl Lengths {
    /// Goes over a bytecode, and gives how long it is with its prefix.
    pub fn of_next(&self, code: &mut Bytes<'_, impl Memory>) -> Option<u32> {
        /// Prefixes, for operands of twice and four times the width: by themselves, and with a
        /// breakpoint.
        const PREFIXES: Range<u8> = 0..4;
        let first = code.byte()?;
        let is_wide = PREFIXES.contains(&first);
        let bytecode = if is_wide { code.byte()? } else { first };
        let length = |of: &[u8]| char::from(*of.get(usize::from(bytecode))?).to_digit(16);
        let usual = length(self.usual)?;
        let more = length(self.twice)?.checked_sub(usual)?;
        let length = match (is_wide, first & 1) {
            (false, _) => usual,
            (true, 0) => usual.checked_add(more)?,
            (true, _) => usual.checked_add(more.checked_mul(3)?)?,
        };
        for _ in 0..length.checked_sub(1)? {
            code.byte()?;
        }
        length.checked_add(u32::from(is_wide))
    }
}

pub const V8_11_3: Lengths = Lengths {
    usual: b"\
        1111123455621211111244222322211123334224424434433344454533333333333333333333333322221112\
        2245545653455564455333333332222154124143423333111422222222222222222222224233521111211245\
        4412211111111111111111",
    twice: b"\
        1111135797931311111377333533311125557337737747755577787855555555555555555555555533331113\
        3379979b95799796699555555553333176136165635555111733333333333333333333337355931111311379\
        7713311111111111111111",
};

pub const V8_12_4: Lengths = Lengths {
    usual: b"\
        1111123455621211111244222322211123334242244244344353344454533333333333333333333333322221\
        1122245545653455564455333333333122211541241434233331114222222222222222222222242335211112\
        112454412211111111111111111",
    twice: b"\
        1111135797931311111377333533311125557373377377477595577787855555555555555555555555533331\
        1133379979b95799796699555555555133311761361656355551117333333333333333333333373559311113\
        113797713311111111111111111",
};

pub const V8_13_6: Lengths = Lengths {
    usual: b"\
        1111123455621211111244422223222111233342422444244434435334445453333333333333333333333332\
        2221122224554565345556445533333333312221154124143423333111422222222224222222222222442352\
        11112112454412211111111111111111",
    twice: b"\
        1111135797931311111377733335333111255573733777377747759557778785555555555555555555555553\
        33311333379979b9579979669955555555513331176136165635555111733333333337333333333333773593\
        11113113797713311111111111111111",
};
