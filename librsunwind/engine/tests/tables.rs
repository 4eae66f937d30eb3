//! Tables of real libraries: our rows against gimli's, row by row, and headers against the `object`
//! crate.
#![allow(
    unsafe_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    clippy::deref_addrof
)]

mod support;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow,
};
use object::{Object as _, ObjectSection as _};
use rsunwind_engine::elf_image;
use rsunwind_engine::module_map::Module;
use rsunwind_engine::registers::{RETURN_ADDRESS, SLOTS};
use rsunwind_engine::rule::UnwindRule;
use rsunwind_engine::rule::wide::{Cfa, Row, Saved};
use rsunwind_engine::rule_cache::RuleCache;
use rsunwind_engine::table::eh_frame::EhFrameTable;
use rsunwind_engine::table::{eh_frame_of, index};
use rsunwind_engine::wire::sample::Method;
use std::sync::LazyLock;
use support::Process;

/// Every mapped library, some more for the purpose, and where they come from.
fn modules() -> Vec<(Module, String)> {
    for name in [
        c"libstdc++.so.6",
        c"libunwind.so.8",
        c"libm.so.6",
        c"libcrypto.so.3",
    ] {
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    }
    let process = Process::new();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path_of = |module: &Module| {
        let start = format!("{:x}-", module.start.0);
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        line.split_whitespace().nth(5).unwrap().to_owned()
    };
    let modules: Vec<_> = process.map.iter().map(|m| (m, path_of(&m))).collect();
    assert!(modules.len() >= 6, "{modules:?}");
    modules
}

#[derive(Default, Debug)]
struct Tally {
    rows: u64,
    in_a_word: u64,
    evaluated: u64,
    usual: u64,
}

static CACHE: LazyLock<&'static RuleCache> = LazyLock::new(support::new_cache);

#[test]
fn every_row_of_real_libraries_is_gimlis() {
    for (module, path) in modules() {
        let Some(table) = eh_frame_of(&module) else {
            continue;
        };
        let tally = compare(&module, &path, &table);
        println!("{path}: {tally:?}");
        assert!(tally.rows > 3, "{path}: {tally:?}");
        // Frames of aarch64 save their registers at the far end, which a word reaches only in small
        // ones.
        if cfg!(target_arch = "x86_64") {
            assert!(tally.in_a_word * 100 > tally.rows * 80, "{path}: {tally:?}");
            assert!(tally.usual * 100 > tally.rows * 95, "{path}: {tally:?}");
        }
        assert!(
            tally.evaluated * 100 <= tally.rows + 300,
            "{path}: {tally:?}"
        );
    }
}

fn compare(module: &Module, path: &str, table: &EhFrameTable<'_>) -> Tally {
    let (start, end) = module.eh_frame_hdr.readable;
    let segment = unsafe { rsunwind_engine::memory::mapped(start.0, end.0) };
    // gimli finds the section by the index in front of it.
    let hdr = module.eh_frame_hdr.start.0;
    let hdr_bytes = &segment[(hdr - start.0) as usize..];
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr);
    let parsed = gimli::EhFrameHdr::new(hdr_bytes, LittleEndian)
        .parse(&bases, 8)
        .unwrap();
    let eh_frame = parsed.eh_frame_ptr().direct().unwrap();
    let bases = bases.set_eh_frame(eh_frame);
    let mut section = EhFrame::new(&segment[(eh_frame - start.0) as usize..], LittleEndian);
    section.set_address_size(8);
    let mut context = UnwindContext::new();
    let mut tally = Tally::default();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            if row.start_address() < row.end_address() && fde.contains(row.start_address()) {
                for pc in [
                    row.start_address(),
                    row.end_address().min(fde.end_address()) - 1,
                ] {
                    compare_row(row, pc, path, table, &mut tally);
                }
            }
        }
    }
    tally
}

type GimliRow = UnwindTableRow<usize>;

fn compare_row(
    theirs: &GimliRow,
    pc: u64,
    path: &str,
    table: &EhFrameTable<'_>,
    tally: &mut Tally,
) {
    let found = table
        .find(pc)
        .unwrap_or_else(|e| panic!("{path} {pc:#x}: {e:?}"));
    tally.rows += 1;
    if let Some(quick) = table.usual_rule(pc) {
        let by_gimli = table.lower(&found, pc, &CACHE.wide, || None);
        assert_eq!(quick, Ok(by_gimli), "{path} {pc:#x}: {found:?}");
        tally.usual += 1;
    }
    let Some(ours) = table.row(&found, pc) else {
        let has_expression = matches!(theirs.cfa(), CfaRule::Expression(_))
            || theirs.registers().any(|(_, rule)| {
                matches!(
                    rule,
                    RegisterRule::Expression(_) | RegisterRule::ValExpression(_)
                )
            });
        assert!(has_expression, "{path} {pc:#x}: {theirs:?}");
        tally.evaluated += 1;
        return;
    };
    let context = || format!("{path} {pc:#x}: {theirs:?} became {ours:?}");
    match (theirs.cfa(), ours.cfa) {
        (
            CfaRule::RegisterAndOffset { register, offset },
            Cfa::Offset {
                register: r,
                offset: o,
            },
        ) => {
            assert_eq!(
                (register.0, *offset),
                (u16::from(r.0), i64::from(o)),
                "{}",
                context()
            );
        }
        (CfaRule::Expression(_), _) => {}
        _ => panic!("{}", context()),
    }
    let slots = SLOTS
        .iter()
        .zip(ours.saved)
        .filter(|(slot, _)| **slot != RETURN_ADDRESS);
    for (register, saved) in slots.chain([(&RETURN_ADDRESS, ours.return_address)]) {
        let rule = theirs.register(gimli::Register(u16::from(register.0)));
        let is_same = match (rule, saved) {
            (None | Some(RegisterRule::SameValue), Saved::Same)
            | (Some(RegisterRule::Undefined), Saved::Undefined)
            | (Some(RegisterRule::Expression(_)), Saved::AtRegister { .. }) => true,
            (Some(RegisterRule::Offset(n)), Saved::At(o)) => n == i64::from(o),
            (Some(RegisterRule::ValOffset(n)), Saved::ValueAt(o)) => n == i64::from(o),
            (Some(RegisterRule::Register(r)), Saved::InRegister(o)) => r.0 == u16::from(o.0),
            _ => false,
        };
        assert!(is_same, "{register:?}: {}", context());
    }
    if let Some(rule) = UnwindRule::from_row(&ours, Method::EhFrame) {
        assert_eq!(rule.row(), ours, "{}", context());
        assert_eq!(rule.method(), Method::EhFrame);
        tally.in_a_word += 1;
    }
}

/// An index made of the section finds for every function what the linker's finds.
#[test]
fn an_index_of_our_own_is_as_good_as_the_linkers() {
    for (module, path) in modules() {
        let Some(theirs) = eh_frame_of(&module).filter(|_| path.starts_with('/')) else {
            continue;
        };
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        let start = section.address() + module.bias;
        let bytes = unsafe { rsunwind_engine::memory::mapped(start, start + section.size()) };
        let code = module.start.0..module.end.0;
        let mut made = vec![0; index::size(bytes, start, &code).unwrap()];
        assert!(index::fill(bytes, start, &code, &mut made));
        let mut short = vec![0; made.len() - 1];
        assert!(!index::fill(bytes, start, &code, &mut short));
        let ours = EhFrameTable::with_index(bytes, start, &made);
        let bases = BaseAddresses::default().set_eh_frame(start);
        let table = EhFrame::new(bytes, LittleEndian);
        let mut entries = table.entries(&bases);
        let mut functions = 0;
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
            let (first, end) = (fde.initial_address(), fde.end_address());
            for pc in [first, first + (end - first) / 2, end - 1] {
                assert_eq!(ours.usual_rule(pc), theirs.usual_rule(pc), "{path} {pc:#x}");
                let rows = [ours, theirs].map(|table| table.row(&table.find(pc).unwrap(), pc));
                assert_eq!(rows[0], rows[1], "{path} {pc:#x}");
            }
            functions += 1;
        }
        assert!(functions > 3, "{path}");
        // Damage makes fewer entries, or others, and nothing worse.
        let mut damaged = bytes.to_vec();
        for at in (0..damaged.len()).step_by(97) {
            damaged[at] ^= 0x5a;
        }
        if let Some(size) = index::size(&damaged, start, &code) {
            assert!(index::fill(&damaged, start, &code, &mut vec![0; size]));
        }
    }
}

#[test]
fn headers_say_what_the_object_crate_reads() {
    for (module, path) in modules() {
        if !path.starts_with('/') {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let image = elf_image::at(module.start).unwrap();
        let hdr = file
            .section_by_name(".eh_frame_hdr")
            .map(|s| s.address() + module.bias);
        assert_eq!(
            module
                .eh_frame_hdr
                .is_present()
                .then_some(module.eh_frame_hdr.start.0),
            hdr,
            "{path}"
        );
        assert_eq!(
            file.build_id().unwrap().unwrap_or_default(),
            image.build_id().as_bytes(),
            "{path}"
        );
        let text = file.section_by_name(".text").unwrap();
        let (start, end) = (
            text.address() + module.bias,
            text.address() + text.size() + module.bias,
        );
        assert!(module.start.0 < start && end <= module.end.0, "{path}");
        assert!(module.end.0 - module.start.0 < 100 << 20, "{path}");
    }
}

#[test]
fn damaged_headers_and_tables_end_in_an_answer() {
    let (module, _) = modules()
        .into_iter()
        .find(|(_, path)| path.contains("libgcc_s"))
        .unwrap();
    let (start, end) = module.eh_frame_hdr.readable;
    let segment = unsafe { rsunwind_engine::memory::mapped(start.0, end.0) };
    let hdr = module.eh_frame_hdr.start.0;
    let wide = support::new_cache();
    let mut seed = 1u64;
    let mut random = |limit: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % limit
    };
    let (mut found, mut missing) = (0, 0);
    for _ in 0..300 {
        let mut bytes = segment.to_vec();
        let at = (hdr - start.0) as usize;
        for _ in 0..60 {
            let place = at + random(bytes.len() - at);
            bytes[place] = random(256) as u8;
        }
        bytes[at + random(12)] ^= 1 << random(8);
        let length = bytes.len() - random(at / 2);
        let Some(table) = EhFrameTable::new(&bytes[..length], start.0, hdr) else {
            continue;
        };
        for _ in 0..200 {
            let pc = module.start.0 + random((module.end.0 - module.start.0) as usize) as u64;
            let quick = table.usual_rule(pc);
            match table.find(pc) {
                Ok(row) => {
                    let rule = table.lower(&row, pc, &wide.wide, || None);
                    assert!(quick.is_none_or(|quick| quick == Ok(rule)), "{row:?}");
                    found += 1;
                }
                Err(_) => missing += 1,
            }
        }
        let mut headers =
            unsafe { rsunwind_engine::memory::mapped(module.start.0, module.start.0 + 4096) }
                .to_vec();
        headers[random(1024)] = random(256) as u8;
        headers.truncate(random(1200));
        let _ = elf_image::parse(&headers, module.start);
        let _ = rsunwind_engine::notes::BuildId::among(&headers);
    }
    assert!(found > 200 && missing > 200, "{found} {missing}");
}

#[test]
fn rows_that_a_word_does_not_hold_share_entries_of_the_wide_table() {
    let wide = &support::new_cache().wide;
    let row = |offset: i32| {
        Row::new(Cfa::Offset {
            register: SLOTS[0],
            offset,
        })
    };
    let first = wide.insert(&row(3)).unwrap();
    assert_eq!(wide.insert(&row(3)), Some(first));
    assert_eq!(wide.get(first), Some(row(3)));
    let kept = (0..4000).filter_map(|n| Some((n, wide.insert(&row(n * 16 + 1))?)));
    let kept: Vec<_> = kept.collect();
    assert!(kept.len() > 1500 && kept.len() < 2048, "{}", kept.len());
    for (n, index) in kept {
        assert_eq!(wide.get(index), Some(row(n * 16 + 1)));
    }
    assert_eq!(wide.get(u32::MAX), None);
}
