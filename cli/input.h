// Reading files, pipes and standard input in a way that signals can end.
//
// Signals are blocked while a SignalWatch exists, so a plain read(2) of a pipe whose writer is slow
// could not be interrupted. Thread rule: one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/signal_watch.h"

namespace cli {

/// Waits until `descriptor` has something to read or has ended. Error: kCancelled after a signal.
base::Status wait_for_input(int descriptor, SignalWatch& signals);

/// Everything up to the end. Errors: kCancelled, kSystem.
base::Result<std::string> read_stdin(SignalWatch& signals);
/// The same of a file or FIFO. Errors: also kNotFound.
base::Result<std::string> read_file(const std::string& path, SignalWatch& signals);

/// Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed: a signal descriptor or a
/// socket would get its number and be taken for standard input or output.
void open_standard_descriptors();

}  // namespace cli
