//! `.eh_frame` interpreted by gimli on a [`Machine`], to compare with what SFrame comes to on it.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, RegisterRule,
    RunTimeEndian, UnwindSection,
};
use sframe_unwind::{Abi, ByteOrder, Register};

use crate::machine::{Caller, Machine};

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// `.eh_frame`, interpreted by gimli.
pub struct Oracle {
    bytes: Vec<u8>,
    address: u64,
    endian: RunTimeEndian,
    abi: Abi,
    /// The functions by their start, and where their entries are.
    index: Vec<(u64, EhFrameOffset)>,
}

impl Oracle {
    pub fn new(bytes: &[u8], address: u64, abi: Abi) -> Self {
        let mut bytes = bytes.to_vec();
        // gimli does not know the augmentation that names the key of return addresses, which
        // changes none of the rules.
        while let Some(at) = bytes.windows(4).position(|window| window == b"zRB\0") {
            bytes[at + 2] = b'S';
        }
        let endian = match abi.byte_order() {
            ByteOrder::Little => RunTimeEndian::Little,
            ByteOrder::Big => RunTimeEndian::Big,
        };
        let mut oracle = Self {
            bytes,
            address,
            endian,
            abi,
            index: Vec::new(),
        };
        let (eh_frame, bases) = oracle.table();
        let (mut entries, mut index) = (eh_frame.entries(&bases), Vec::new());
        while let Some(entry) = entries.next().expect("an entry") {
            if let CieOrFde::Fde(fde) = entry {
                let fde = fde.parse(EhFrame::cie_from_offset).expect("an FDE");
                // An empty function contains nothing, and begins where another does.
                if fde.len() > 0 {
                    index.push((fde.initial_address(), EhFrameOffset(fde.offset())));
                }
            }
        }
        index.sort_by_key(|(start, _)| *start);
        oracle.index = index;
        oracle
    }

    fn table(&self) -> (EhFrame<Reader<'_>>, BaseAddresses) {
        let mut eh_frame = EhFrame::new(&self.bytes, self.endian);
        eh_frame.set_address_size(8);
        if matches!(self.abi, Abi::Aarch64Big | Abi::Aarch64Little) {
            eh_frame.set_vendor(gimli::Vendor::AArch64);
        }
        (
            eh_frame,
            BaseAddresses::default().set_eh_frame(self.address),
        )
    }

    /// What the rules for the machines' one pc come to.
    pub fn callers(&self, machines: &[Machine; 2]) -> [Caller; 2] {
        let (eh_frame, bases) = self.table();
        let pc = machines[0].pc.0;
        let position = self
            .index
            .partition_point(|(start, _)| *start <= pc)
            .checked_sub(1)
            .expect("a function");
        let offset = self.index[position].1;
        let fde = eh_frame
            .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
            .expect("an FDE");
        assert!(fde.contains(pc), "{pc:#x} is in no function");
        let mut context = gimli::UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&eh_frame, &bases, &mut context, pc)
            .expect("a row")
            .clone();
        machines.map(|machine| self.caller(&machine, &row, &eh_frame, fde.cie().encoding()))
    }

    fn caller(
        &self,
        machine: &Machine,
        row: &gimli::UnwindTableRow<usize>,
        eh_frame: &EhFrame<Reader<'_>>,
        encoding: gimli::Encoding,
    ) -> Caller {
        let evaluate = |expression: &gimli::UnwindExpression<usize>, initial: Option<u64>| {
            evaluate(
                machine,
                expression.get(eh_frame).expect("an expression"),
                encoding,
                initial,
            )
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => machine
                .register(Register(register.0))
                .wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => evaluate(expression, None),
        };
        let value = |register: Register| match row.register(gimli::Register(register.0)) {
            None | Some(RegisterRule::SameValue) => Some(machine.register(register)),
            Some(RegisterRule::Undefined) => None,
            Some(RegisterRule::Offset(offset)) => {
                Some(machine.memory(cfa.wrapping_add_signed(offset)))
            }
            Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(register)) => Some(machine.register(Register(register.0))),
            Some(RegisterRule::Expression(expression)) => {
                Some(machine.memory(evaluate(&expression, Some(cfa))))
            }
            Some(RegisterRule::ValExpression(expression)) => Some(evaluate(&expression, Some(cfa))),
            Some(rule) => panic!("{rule:?}"),
        };
        let Some(ra) = value(self.abi.return_address()) else {
            return Caller::None;
        };
        Caller::Frame {
            cfa,
            ra,
            fp: value(self.abi.frame_pointer()).expect("a frame pointer"),
        }
    }
}

/// The value of a DWARF expression on the machine.
fn evaluate(
    machine: &Machine,
    expression: gimli::Expression<Reader<'_>>,
    encoding: gimli::Encoding,
    initial: Option<u64>,
) -> u64 {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate().expect("an expression");
    loop {
        state = match state {
            gimli::EvaluationResult::Complete => break,
            gimli::EvaluationResult::RequiresRegister { register, .. } => {
                let value = machine.register(Register(register.0));
                evaluation.resume_with_register(gimli::Value::Generic(value))
            }
            gimli::EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(machine.memory(address)))
            }
            state => panic!("{state:?}"),
        }
        .expect("a value");
    }
    match evaluation.result().as_slice() {
        [
            gimli::Piece {
                location: gimli::Location::Address { address },
                ..
            },
        ] => *address,
        result => panic!("{result:?}"),
    }
}
