//! The functions of `include/rsunwind.h`, under their names, and all together for linked libraries,
//! which hand over to them.

use rsunwind::interface::{Functions, clients, languages, regions};

macro_rules! export {
    ($($name:ident = $function:path,)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!("endbr64", "jmp {function}", function = sym $function)
            }
        )*

        const COUNT: usize = [$(stringify!($name)),*].len();

        #[unsafe(export_name = "rsunwind_preloaded_2")]
        static PRELOADED: Functions<COUNT> = Functions {
            count: COUNT,
            all: [$($function as *const ()),*],
        };
    };
}

rsunwind::for_each_function!(export);
