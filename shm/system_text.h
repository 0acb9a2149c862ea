// Small readers of the text files in which a system says what it is: /proc, /sys, /etc.
//
// What is missing or cannot be read is empty or 0. `root` is where / is, for trees made by tests.
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shm {

/// Without blanks and line ends at both ends.
std::string_view trimmed(std::string_view text);

/// Firmware writes what it likes; reports and JSON take ASCII.
std::string printable(std::string_view text);

/// The whole file, or nothing.
std::string text_of(const std::string& path);

/// Trimmed and printable.
std::string first_line(const std::string& path);

/// What follows "name" and a colon in the first line that begins so.
std::string field_of(std::string_view text, std::string_view name);

/// "madvise" of "always [madvise] never".
std::string chosen_word(std::string_view line);

/// The digits in front; 0 if there are none.
uint64_t number_of(std::string_view text);

/// Bytes of a "Name: 12 kB" line.
uint64_t kilobytes_of(std::string_view text, std::string_view name);

/// The names in a directory, in order, without "." and "..".
std::vector<std::string> names_in(const std::string& directory);

/// Where the limits of this process's cgroup and its ancestors are, from the innermost on: in
/// version 2, and in the hierarchy of `controller` in version 1. A container sees its own group as
/// /.
std::vector<std::string> cgroup_directories(std::string_view controller, const std::string& root);

}  // namespace shm
