// The packed layouts, one per line: what is listed here has a kernel in every instruction set, a
// size, a name and a way to pack it. A format is the struct of its format_*.h; how it lies is said
// there, and in the drivers matmul.h, blocks_32.h and blocks_k.h.
//
// One vector is 64 bytes = 16 lanes of 4 bytes; lane r belongs to row r and holds four consecutive
// k, as whole bytes or as parts of them. An ISA with registers of 8 lanes reads half a vector (byte
// offset 4 * first row), the scalar one a lane: the same bytes serve all of them. A panel is one
// stream in k order.
//
//   floats                           blocks of 32             blocks of 256
//   [k][16] of 2 or 4 bytes,         [k / 64] Group32,        [k / 256] …Block
//   padded to whole vectors          last one may be half
//
// Nothing is added to the bytes of the file but paddings of Q6_K (1 %), Q3_K (2 %) and IQ4_XS (3 %)
// and a second byte for the scales of MXFP4 (6 %), which would else take integer work for every 32
// weights.
#pragma once

#include "kernels/format_float.h"
#include "kernels/format_iq4_nl.h"
#include "kernels/format_iq4_xs.h"
#include "kernels/format_mxfp4.h"
#include "kernels/format_q2_k.h"
#include "kernels/format_q3_k.h"
#include "kernels/format_q4_0.h"
#include "kernels/format_q4_1.h"
#include "kernels/format_q4_k.h"
#include "kernels/format_q5_0.h"
#include "kernels/format_q5_k.h"
#include "kernels/format_q6_k.h"
#include "kernels/format_q8_0.h"

namespace kernels {

template <class... Format>
struct FormatList {
  static constexpr int kCount = sizeof...(Format);
  static_assert(kCount + 1 == kLayoutCount, "each layout but kRows is listed once");

  /// Calls visit.template operator()<F>() for each format F.
  template <class Visit>
  static constexpr void for_each(Visit visit) {
    (visit.template operator()<Format>(), ...);
  }
};

using Formats = FormatList<            //
    FormatF32, FormatF16, FormatBF16,  //
    FormatQ8_0, FormatQ4_0, FormatQ4_1, FormatQ5_0, FormatQ5_1, FormatMXFP4, FormatIQ4_NL,
    FormatQ2_K, FormatQ3_K, FormatQ4_K, FormatQ5_K, FormatQ6_K, FormatIQ4_XS>;

}  // namespace kernels
