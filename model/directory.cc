// Reading a model's directory from disk: one file, or all parts of a split one.
#include <map>
#include <string_view>

#include "base/cat.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

// Part numbers have five digits.
constexpr int64_t kPartsMax = 99999;

/// What a file says about the split model it belongs to.
struct Split {
  int64_t part = 0, count = 1, tensors = -1;
};

Result<Split> read_split(const Metadata& metadata) {
  Split split;
  ASSIGN_OR_RETURN(split.count, metadata.integer_or("split.count", 1, 0, kPartsMax));
  if (split.count <= 1) return Split{};
  ASSIGN_OR_RETURN(split.part, metadata.integer("split.no", 0, split.count - 1));
  ASSIGN_OR_RETURN(split.tensors,
                   metadata.integer_or("split.tensors.count", -1, 0, int64_t{1} << 31));
  return split;
}

std::string five_digits(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - digits.size(), '0') + digits;
}

/// The ending of a part's file name, for example "-00001-of-00003.gguf".
std::string part_ending(int64_t part, int64_t count) {
  return cat('-', five_digits(part + 1), "-of-", five_digits(count), ".gguf");
}

Result<Directory> read_file(const std::string& path, Extent extent) {
  ASSIGN_OR_RETURN(PosixFile file, PosixFile::open(path));
  ASSIGN_OR_RETURN(Directory directory, parse_gguf(file, extent));
  directory.files = {file.source()};
  return directory;
}

Error in_file(const std::string& path, const Error& error) {
  return {error.code, cat(path, ": ", error.message)};
}

/// Adds a part's file and tensors to `whole`.
Status append_part(Directory& whole, Directory part) {
  std::map<std::string_view, const TensorInfo*> known;
  for (const TensorInfo& tensor : whole.tensors) known[tensor.name] = &tensor;
  const auto file_index = static_cast<int>(whole.files.size());
  for (TensorInfo& tensor : part.tensors) {
    if (const auto it = known.find(tensor.name); it != known.end()) {
      const auto other = static_cast<size_t>(it->second->file_index);
      return Error{Code::kBrokenFile, cat(part.files[0].path, ": tensor '", printable(tensor.name),
                                          "' is also in ", whole.files[other].path)};
    }
    tensor.file_index = file_index;
  }
  whole.files.push_back(std::move(part.files[0]));
  std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(whole.tensors));
  return {};
}

Status read_part(Directory& whole, const std::string& path, const Split& expected, Extent extent) {
  auto part = read_file(path, extent);
  if (!part.ok() && part.error().code == Code::kNotFound) {
    return Error{Code::kNotFound, cat(path, ": part ", expected.part + 1, " of ", expected.count,
                                      " is missing; put all parts into one folder")};
  }
  if (!part.ok()) return part.error();
  const auto split = read_split(part->metadata);
  if (!split.ok()) return in_file(path, split.error());
  if (split->part != expected.part || split->count != expected.count) {
    return Error{Code::kBrokenFile,
                 cat(path, ": 'split.no' and 'split.count' make it part ", split->part + 1, " of ",
                     split->count, ", its name part ", expected.part + 1, " of ", expected.count)};
  }
  if (split->tensors != expected.tensors) {
    return Error{Code::kBrokenFile, cat(path, ": metadata key 'split.tensors.count' is ",
                                        split->tensors, ", in the first part ", expected.tensors)};
  }
  return append_part(whole, std::move(*part));
}

Status read_other_parts(Directory& whole, const std::string& path, const Split& first,
                        Extent extent) {
  if (first.part != 0) {
    return Error{Code::kInvalidArgument,
                 cat(path, ": is part ", first.part + 1, " of ", first.count,
                     "; give the first part, whose name ends in ", part_ending(0, first.count))};
  }
  const std::string ending = part_ending(0, first.count);
  if (!path.ends_with(ending)) {
    return Error{Code::kInvalidArgument,
                 cat(path, ": is part 1 of ", first.count, " but its name does not end in ", ending,
                     ", so the other parts cannot be found; rename the files")};
  }
  const std::string stem = path.substr(0, path.size() - ending.size());
  for (int64_t part = 1; part < first.count; ++part) {
    const Split expected = {.part = part, .count = first.count, .tensors = first.tensors};
    RETURN_IF_ERROR(read_part(whole, stem + part_ending(part, first.count), expected, extent));
  }
  if (first.tensors >= 0 && static_cast<int64_t>(whole.tensors.size()) != first.tensors) {
    return Error{Code::kBrokenFile,
                 cat(path, ": metadata key 'split.tensors.count' is ", first.tensors,
                     " but the parts have ", whole.tensors.size(), " tensors")};
  }
  return {};
}

}  // namespace

const TensorInfo* Directory::find(std::string_view name) const {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Result<Directory> read_directory(const std::string& path, Extent extent) {
  ASSIGN_OR_RETURN(Directory directory, read_file(path, extent));
  const auto split = read_split(directory.metadata);
  if (!split.ok()) return in_file(path, split.error());
  if (split->count > 1) RETURN_IF_ERROR(read_other_parts(directory, path, *split, extent));
  return directory;
}

}  // namespace model
