// From a checked directory to a checked model: one small function per architecture.
//
// The only place that knows architectures by name.
#pragma once

#include <memory>

#include "model/model.h"

namespace model {

/// Recognises the architecture and binds every tensor. Errors: kBrokenFile, kUnsupported; each is
/// one sentence that starts with the first file's path and names the key or tensor.
base::Result<Model> build_model(std::unique_ptr<const Directory> directory);

}  // namespace model
