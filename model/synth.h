// Synthetic models: files of a known shape with random weights, to measure and test on.
//
// Such a file is read, run and refused like any other; its text is noise. Weights are written in
// their type at once, never by way of floats, so that writing is as fast as the disk. Values are
// scaled like trained ones: see model/synth_shapes.cc. The same request gives the same bytes.
//
// plan_synth() is a pure function; write_synth() blocks and uses threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/metadata.h"
#include "model/model.h"
#include "model/synth_shapes.h"

namespace model {

struct SynthRequest {
  std::string_view architecture = {};     // empty: the shape's own
  std::string_view weight_type = "q4_k";  // as in model/synth_types.h
  int64_t layers = 0;                     // the first ones only; 0: all
};

/// All of a file but the values.
struct SynthPlan {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // names, types and shapes
  std::vector<double> deviations;   // [tensors] of the values; 0: a norm
};

/// `vocabulary` is the metadata of a file to take the tokenizer from; unused tokens fill it up to
/// the shape's size. Errors: kInvalidArgument (architecture, type or layers that the shape cannot
/// have; a vocabulary that is too large), kBrokenFile (there is none).
base::Result<SynthPlan> plan_synth(const SynthShape& shape, const SynthRequest& request,
                                   const Metadata& vocabulary);

/// What a reader of the written file would see, without a file: its directory.
Directory synth_directory(const SynthPlan& plan);

struct SynthWriteOptions {
  bool replace = false;  // an existing file
  int threads = 0;       // that make weights; 0: one per CPU, at most 8
  uint64_t seed = 1;
  /// Told how many bytes of weights are written, about 20 times a second, on the calling thread;
  /// false: stop, which is the error kCancelled.
  std::function<bool(uint64_t done, uint64_t total)> on_progress = {};
};

/// Writes the file; under its name there is all of it or nothing new. Returns its bytes. Errors: as
/// GgufWriter's, and kCancelled.
base::Result<uint64_t> write_synth(const SynthPlan& plan, const std::string& path,
                                   const SynthWriteOptions& options);

}  // namespace model
