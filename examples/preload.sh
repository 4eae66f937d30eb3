#!/bin/sh
# A program recorded by the preload library alone: no collector runs beside it, and each process
# writes a recording of its own.
#   examples/preload.sh COMMAND [ARGUMENT …]
set -eu
# The key `output` is the recording's name; %p is the process's number.
LD_PRELOAD=$(rsunwind library) RSUNWIND=rate=999,output=own.%p.rsu "$@"
rsunwind report own.*.rsu
