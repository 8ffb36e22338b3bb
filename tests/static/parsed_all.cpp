// All headers, and a call of each form: parsed under other settings, see tests/CMakeLists.txt.
#include <sympow/attention/compiled_forms.hpp>
#include <sympow/io/output_file.hpp>
#include <sympow/io/safetensors.hpp>
#include <sympow/sympow.hpp>
#include <sympow/verify/laws.hpp>

using Power = sympow::SymmetricPower<2>;
SYMPOW_CALLS(, float, sympow::detail::PowerFeature<float>)
template void sympow::save(const sympow::State<float, Power>&, std::ostream&);
template void sympow::load(sympow::State<float, Power>&, std::istream&);
