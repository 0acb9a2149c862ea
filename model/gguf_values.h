// The key-value part of a GGUF header: every value type, integers and floats of any width.
//
// Reads from the cursor's position; the cursor ends after the last value. One thread.
#pragma once

#include "model/gguf_cursor.h"
#include "model/metadata.h"

namespace model {

/// Reads `count` keys with their values. Errors: kBrokenFile (unknown value type, duplicate key,
/// length beyond the file), kUnsupported (arrays of arrays), each naming the key.
base::Result<Metadata> read_metadata(GgufCursor& cursor, uint64_t count);

}  // namespace model
