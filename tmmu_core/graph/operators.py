"""Parse operator names, and look up their properties in the operator table.

All spellings of an operator have the same properties: ``aten::mul.Tensor``, ``torch.ops.aten.mul``, ``aten.mul_``,
``ai.onnx::Mul``, ``stablehlo.multiply``, ``TFL.MUL``, ``MUL``. Operators of other namespaces have unknown properties.

A row of the table is ``cost gradient traits: names``. ``cost`` is a formula of :mod:`.flops`, or ``-`` if unknown.
``gradient`` names the operands that the gradient reads: ``nothing``, ``inputs``, ``outputs``, ``both`` of these, or
``mask`` (the second output, else the only one). Traits are optional. ``names`` are the operators with these properties.

Names are in lower case, without hyphens and underscores. ``hlo:`` or ``aten:`` before a name limits the entry to that
family, because one name denotes different operators in different families. A name with a dot is a variant with
properties of its own: ``loop.open`` and ``loop.close`` begin and end a loop whose body is part of the graph.

Traits:

* ``elementwise``: element i of the output depends only on element i of each input, so that the output may overwrite an
  input of its shape and dtype.
* ``random``: draws from a generator; a second run gives another result, unless the generator's state is restored.
* ``communicates``: exchanges data with other ranks.
* ``effects``: has an effect outside its outputs (state, control flow with opaque bodies, printing).
* ``statistics``: overwrites running statistics on which its other outputs do not depend.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

Needs = Literal["nothing", "inputs", "outputs", "both", "mask"]


def words(text: str) -> frozenset[str]:
    """Return the words of a text, for long tables of names."""
    return frozenset(text.split())


HLO = words("stablehlo mhlo chlo hlo xla lax vhlo")
ATEN = words("aten prims prim torch ops executorch dimorderops rngprims edge")
COMMUNICATION = words("c10d c10dfunctional distributed dist nccl rccl gloo mpi horovod symmmem dtensor")
NAMESPACES = HLO | ATEN | COMMUNICATION
NAMESPACES |= words(
    "ai onnx ml training preview com microsoft ms internal nchwc nhwc org pytorch pkg onnxscript torchlib tfl tf "
    "tflite tensorflow builtin rawops jax numpy np jnp nn functional f modules module activation special math linalg "
    "operator builtins keras layers exir dialects quantized quantizeddecomposed higherorder inductor tosa tensor "
    "tensorbase c variablefunctions"
)

GRADIENT = "_GRAD"  # suffix of the synthesized backward step of an operator
OVERLOADS = words(
    "default Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor Tensor_mode Scalar_mode int int_list dim dims "
    "dim_IntList self sizes using_ints dtype correction vec Dimname indices sections other device dtype_layout out "
    "start start_step tensor_list"
)
"""Overloads that a one-word name can end with: ``aten_add_Tensor``."""
ONE_WORD = re.compile(
    r"(?:executorch_exir_dialects_edge__ops_|(?i:tfl|tflite)(?:\.|::))?(aten|prims|dim_order_ops|(?i:stablehlo))_+(\w+)"
)
_OBJECT = re.compile(r"<(?:built-in )?(?:function|method|class) '?([\w.]*\w)(?![\w.]).*>")  # ``repr`` of a function


@dataclass(frozen=True)
class Operator:
    """The properties of an operator, and the parts of its name; a backward step is neither random nor elementwise.

    The defaults of cost, gradient and traits are the properties of an unknown operator.
    """

    cost: str = ""  # name of the cost formula; empty if unknown
    gradient_needs: Needs = "inputs"  # the operands that the gradient reads (contract §2)
    traits: frozenset[str] = frozenset()
    namespace: str = ""
    base: str = ""
    overload: str = ""
    is_gradient: bool = False  # whether the node is the synthesized backward step of the operator
    is_unknown: bool = False  # whether it has a name that is not in the table, or is in an unknown namespace

    @property
    def is_elementwise(self) -> bool:
        """Whether the output may overwrite an input of the same shape and dtype."""
        return "elementwise" in self.traits

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers. A backward step does not: it reads the mask that the forward step wrote."""
        return "random" in self.traits

    @property
    def keeps_position(self) -> bool:
        """Whether it must keep its position in the order: it is random, communicates, has effects or is unknown."""
        return self.is_unknown or not self.traits.isdisjoint(("random", "communicates", "effects"))

    @property
    def can_recompute(self) -> bool:
        """Whether a second run has the same result, if the state of the random generator is restored."""
        return self.is_random or not self.keeps_position


def table_spelling(word: str) -> str:
    """Return ``word`` in the spelling of the table: lower case, without hyphens and underscores."""
    return word.replace("_", "").replace("-", "").lower()


@lru_cache(maxsize=4096)
def operator_of(instr: str) -> Operator:
    """Return the operator that ``instr`` names."""
    text, is_gradient = instr.strip().removesuffix(GRADIENT), instr.strip().endswith(GRADIENT)
    if (match := _OBJECT.fullmatch(text)) is not None:
        text = match[1]
    if (match := ONE_WORD.fullmatch(text)) is not None:
        namespace, base, overload = one_word_parts(match[1], match[2])
    else:
        namespace, base, overload = _parts(text)
    namespaces = {table_spelling(word) for word in re.split(r"::|\.", namespace) if word}
    name = table_spelling(base)
    entry = TABLE.get(f"{name}.{table_spelling(overload)}") or TABLE.get(name)
    for family, namespaces_of_family in (("hlo", HLO), ("aten", ATEN)):
        if namespaces & namespaces_of_family:
            entry = TABLE.get(f"{family}:{name}", entry)
    if not namespaces <= NAMESPACES:
        entry = None
    elif namespaces & COMMUNICATION:
        entry = TABLE["allreduce"]  # all operators of a communication library have the same properties
    known = entry or Operator()
    cost, traits = ("", known.traits - {"elementwise", "random"}) if is_gradient else (known.cost, known.traits)
    is_unknown = entry is None and base != ""
    return Operator(cost, known.gradient_needs, traits, namespace, base, overload, is_gradient, is_unknown)


def one_word_parts(namespace: str, rest: str) -> tuple[str, str, str]:
    """Return ``("aten", "add", "Tensor")`` for ``aten`` and ``add_Tensor``; no overload if ``rest`` is in the table."""
    overloads = [suffix for suffix in OVERLOADS if rest.endswith(f"_{suffix}") and table_spelling(rest) not in TABLE]
    overload = max(overloads, key=len, default="")
    return namespace, rest.removesuffix(f"_{overload}") if overload else rest, overload


def _parts(text: str) -> tuple[str, str, str]:
    """Return namespace, base name and overload of a name with dots and colons."""
    namespace, colons, rest = text.rpartition("::")
    parts = [part for part in rest.split(".") if part]
    if not parts:
        return text, text, ""
    base = 0  # position of the base name
    while not colons and base < len(parts) - 1 and table_spelling(parts[base]) in NAMESPACES:
        base += 1
        if parts[base - 1] in ("aten", "prims"):
            break  # the next part is the operator, even if it is also the name of a namespace
    namespace = namespace if colons else ".".join(parts[:base])
    if "modules" in parts[:base] and base < len(parts) - 1:
        base += 1  # torch.nn.modules.rnn.LSTM: skip the module file `rnn`
    return namespace, parts[base], ".".join(parts[base + 1 :])


ROWS = """\
# Data movement. The gradients of index operators need the indices.
moves nothing: copyout copyin view viewas reshape reshapeas unsafeview reshapealias flatten ravel unflatten squeeze
  unsqueeze expanddims transpose transposecopy permute t swapaxes swapdims moveaxis movedim expand expandas broadcastto
  broadcastindim broadcasttensors hlo:broadcast dynamicbroadcastindim dynamicreshape bitcast bitcastconvert alias detach
  contiguous slice slicescatter slicebackward stridedslice dynamicslice dynamicupdateslice selectbackward selectscatter
  split splitwithsizes splitv chunk tensorsplit unbind cat concat concatenation concatenate stack pack unpack tile
  repeat pad padv2 constantpad constantpadnd mirrorpad reflectionpad2d replicationpad2d flip roll reverse reversev2
  depthtospace spacetodepth batchtospacend spacetobatchnd pixelshuffle pixelunshuffle channelshuffle narrow asstrided
  diagonal liftfresh liftfreshcopy unfold col2im upsamplenearest resizenearestneighbor upsamplenearest2d real imag
  viewasreal viewascomplex conj resolveconj resolveneg complex identity copy to tocopy todimordercopy convert
  convertelementtype typeas broadcastargs tuple gettupleelement unsafesplit unsafesplitwithsizes unsafechunk
  emptypermuted lift sliceinverse negview rot90 diagembed trilindices triuindices linspace logspace pinmemory aliascopy
  detachcopy viewcopy reshapecopy reshapealiascopy expandcopy permutecopy tcopy squeezecopy unsqueezecopy selectcopy
  slicecopy narrowcopy splitcopy splitwithsizescopy unbindcopy unfoldcopy diagonalcopy asstridedcopy viewasrealcopy
  viewascomplexcopy conjcopy negviewcopy im2col reflectionpad1d reflectionpad3d replicationpad1d replicationpad3d
  upsamplenearest1d upsamplenearest3d upsamplenearestexact1d upsamplenearestexact2d upsamplenearestexact3d zeros
  zeroslike ones oneslike full fulllike empty emptylike emptystrided newzeros newones newempty newfull newemptystrided
  constant constantofshape fill zero scalartensor arange range iota eyelike eye tangent shape size rank varhandle
moves inputs: gather gathernd gatherelements indexselect index indexput embedding embeddinglookup take scatter scatternd
  scatterelements hashtablelookup unsafeindex unsafemaskedindex unsafeindexput indexputimpl asstridedscatter
  diagonalscatter indexcopy indexfill put maskedselect maskedscatterbackward nonzerostatic isin
moves nothing elementwise: clone cast castlike
# eachN: N operations for each element of the first output.
each1 nothing elementwise: add addv2 iadd sub subtract isub rsub neg negative negate
each1 outputs elementwise: relu exp hlo:exponential sqrt reciprocal tanh
each1 inputs elementwise: mul multiply imul div divide truediv truedivide idiv realdiv divnonan abs sign ceil floor
  round trunc frac roundnearesteven roundnearestafz rsqrt exp2 expm1 exponentialminusone log log2 log10 log1p logplusone
  sin sine cos cosine tan asin acos atan atan2 sinh cosh asinh acosh atanh erf erfc erfinv pow power square cbrt mod
  fmod remainder floordivide floordiv floormod truncatediv maximum minimum fmax fmin relu6 relu0to1 threshold eq ne ge
  gt le lt equal notequal greater greaterequal greaterorequal less lessequal lessorequal compare logicaland logicalor
  logicalnot logicalxor and or xor not bitwiseand bitwiseor bitwisenot bitwisexor bitshift lshift rshift iand ior ixor
  ilshift irshift bitwiseleftshift bitwiserightshift leftshift rightshift shiftleft shiftrightarithmetic
  shiftrightlogical isnan isinf isfinite isneginf isposinf where hlo:select selectv2 maskedfill maskedfillscalar
  thresholdbackward reluback reluneg1to1 relun1to1 signbit hardtanh copysign conjphysical deg2rad rad2deg heaviside sgn
  positive sinc xlogy nantonum floatpower hypot
each1 inputs: scale bias tril triu trilu quantize dequantize cumsum cumprod onehot outer maskedscatter
# Two operations per element: a product and a sum, two comparisons, or a scaled mask.
each2 inputs elementwise: addcmul addcdiv lerp clamp clip clampmin clampmax leakyrelu prelu thresholdedrelu shrink
  hardshrink softshrink hardsigmoid squareddifference softsign tanhshrink nativedropoutbackward leakyrelubackward
each2 inputs: affine quantizelinear dequantizelinear hardtanhbackward preluback batchnormalization
  nativebatchnormlegitnotraining
# Functions composed of several elementary ones.
each4 outputs elementwise: sigmoid logistic
each4 inputs elementwise: hardswish elu celu selu softplus logit sigmoidbackward
each3 inputs elementwise: tanhbackward logsigmoid
each3 inputs: elubackward hardswishbackward hardsigmoidbackward mselossbackward
each5 inputs elementwise: silu swish mish
each5 inputs: logsigmoidforward logsigmoidbackward softmin hardmax
each8 inputs elementwise: gelu silubackward fastgelu quickgelu angle digamma i0 ldexp lgamma logaddexp logaddexp2
  logitbackward mishbackward hardshrinkbackward softshrinkbackward specialentr specialerfcx speciali0e speciali1
  speciali1e speciallogndtr specialndtri specialxlog1py
each8 inputs: biasgelu softplusbackward blackmanwindow hammingwindow hannwindow bartlettwindow kaiserwindow
each14 inputs elementwise: gelubackward geluback
- inputs elementwise: gcd lcm igamma igammac mvlgamma nextafter polygamma swiglu fakequant
each5 outputs: softmax logsoftmax safesoftmax
each4 inputs: softmaxbackwarddata logsoftmaxbackwarddata softmaxback
# Reductions, pooling and norms. readN: N operations for each element of the first input.
read1 nothing elementwise: mean
read1 nothing: reducemean reducesum averagepool avgpool avgpool2d averagepool2d globalaveragepool adaptiveavgpool2d
  avgpool2dbackward adaptiveavgpool2dbackward
read1 both: amax amin reducemax reducemin maxpool maxpool2d maxpool2dwithindices globalmaxpool
read1 inputs: prod all any argmax argmin cummax cummin norm logsumexp reduceprod reduceany reduceall reducelogsum
  hlo:reduce countnonzero topk topkv2 sort argsort nonzero unique embeddingdensebackward maxpool2dwithindicesbackward
  lppool
# scattered: one addition for each element of the source.
scattered inputs: indexadd scatteradd indexputaccumulate
fold nothing elementwise: sum
fold both elementwise: max min
select nothing: select
read2 inputs: reducel1 reducesumsquare reducel2 linalgvectornorm l2normalization lpnormalization
read4 inputs: var std varmean stdmean reducelogsumexp
each8 inputs: lrn localresponsenormalization
# Normalizations: 1 operation for the mean, 3 for the variance, 2 to normalize, 2 to scale and shift.
each8 inputs: layernorm layernormalization nativelayernorm groupnorm groupnormalization nativegroupnorm instancenorm
  instancenormalization batchnorm cudnnbatchnorm batchnormwithupdate
each8 inputs statistics: nativebatchnorm nativebatchnormlegit nativebatchnormlegitfunctional
  batchnormwithupdatefunctional
read11 inputs: nativelayernormbackward nativebatchnormbackward cudnnbatchnormbackward nativegroupnormbackward
  batchnormbackward fusedrmsnormbackward
each5 inputs: rmsnorm fusedrmsnorm simplifiedlayernormalization rmsnormalization
each9 inputs: skiplayernormalization
# touched: one operation for each element that is read or written. PyTorch's pure operators without another formula.
touched inputs: adaptiveavgpool3d adaptiveavgpool3dbackward adaptivemaxpool2d adaptivemaxpool2dbackward
  adaptivemaxpool3d adaptivemaxpool3dbackward addr affinegridgenerator aminmax avgpool3d avgpool3dbackward
  binarycrossentropy binarycrossentropybackward binarycrossentropywithlogits blockdiag bucketize cdistbackward
  cdistforward ctcloss ctclossbackward diagonalbackward dist euclideandist embeddingbag embeddingbagbackward
  embeddingbagdensebackward embeddingbagforwardonly embeddingbagpersampleweightsbackward
  fakequantizeperchannelaffinecachemask fakequantizepertensoraffinecachemask fractionalmaxpool2d
  fractionalmaxpool2dbackward fractionalmaxpool3d fractionalmaxpool3dbackward frexp glu glubackward gridsampler2d
  gridsampler2dbackward gridsampler3d gridsampler3dbackward histc histogram huberlossbackward indexreduce kthvalue
  linalgcross logcumsumexp maskedsoftmax maskedsoftmaxbackward maxpool2dbackward maxpool3dwithindices
  maxpool3dwithindicesbackward maxunpool2d maxunpool3d median mode multilabelmarginlossbackward
  multilabelmarginlossforward multimarginloss multimarginlossbackward nanmedian nansum nativenorm pdistbackward
  pdistforward polar prelukernel prelukernelbackward reflectionpad1dbackward reflectionpad2dbackward
  reflectionpad3dbackward renorm replicationpad1dbackward replicationpad2dbackward replicationpad3dbackward
  rreluwithnoisebackward scatterreduce searchsorted segmentreduce segmentreducebackward smoothl1lossbackward
  softmarginloss softmarginlossbackward thnnfusedgrucell thnnfusedgrucellbackward thnnfusedlstmcell
  thnnfusedlstmcellbackwardimpl trace trilinear unfoldbackward unique2 uniqueconsecutive uniquedim
  unsafemaskedindexputaccumulate upsamplebicubic2d upsamplebicubic2daa upsamplebicubic2daabackward
  upsamplebicubic2dbackward upsamplebilinear2d upsamplebilinear2daa upsamplebilinear2daabackward
  upsamplebilinear2dbackward upsamplelinear1d upsamplelinear1dbackward upsamplenearest1dbackward
  upsamplenearest2dbackward upsamplenearest3dbackward upsamplenearestexact1dbackward upsamplenearestexact2dbackward
  upsamplenearestexact3dbackward upsampletrilinear3d upsampletrilinear3dbackward weightnorminterface
  weightnorminterfacebackward
# Losses and optimizers.
loss inputs: nllloss nlllossforward nllloss2dforward nlllossbackward nllloss2dbackward
read6 inputs: crossentropy softmaxcrossentropyloss crossentropyloss
read3 inputs: crossentropyback mseloss smoothl1loss l1loss huberloss
read2 inputs: sgd
read4 inputs: sgdmomentum
read14 inputs: adam adamw fusedadam fusedadamw
# Contractions.
matmul inputs: matmul mm bmm batchmatmul batchmatmulv2 batchmatmulv3 matmulinteger groupedmm hlo:dot
addmm inputs: addmm baddbmm
addbmm inputs: addbmm
dense inputs: gemm linear fullyconnected fusedmatmul
matrixvector inputs: mv dot vdot
addmv inputs: addmv
gelumatmul inputs: gelumatmul
convolution inputs: conv convolution conv1d conv3d convinteger mkldnnconvolution convolutionoverrideable
  cudnnconvolution cudnnconvolutiontranspose convdepthwise2d convdepthwise3d
conv2d inputs: conv2d
depthwise inputs: depthwiseconv depthwiseconv2d
convtranspose inputs: convtranspose
transposeconv inputs: transposeconv
convolutionbackward inputs: convolutionbackward convolutionbackwardoverrideable
qlinearconv inputs: qlinearconv
attention inputs: attention scaleddotproductflashattentionforcpu
# Operators with dropout are random, as if the probability is > 0. On the CPU, flash attention has no dropout.
attention inputs random: scaleddotproductattention scaleddotproductflashattention scaleddotproductefficientattention
  scaleddotproductcudnnattention scaleddotproductattentionmathformps scaleddotproductfusedattentionoverrideable
attentionheadslast inputs random: flashattentionforward efficientattentionforward
- inputs random: aten:multiheadattention aten:lstm aten:gru rnntanh rnnrelu cudnnrnn miopenrnn
attentionbackward inputs: scaleddotproductflashattentionbackward scaleddotproductflashattentionforcpubackward
  scaleddotproductefficientattentionbackward scaleddotproductcudnnattentionbackward
  scaleddotproductfusedattentionoverrideablebackward
attentionheadslastbackward inputs: flashattentionbackward efficientattentionbackward
fft inputs: fftc2c fftc2r fftr2c
linalg inputs: linalgdet linalgslogdet linalgeigh linalgeig linalgeigvals linalgsvd linalgqr linalgcholeskyex
  linalginvex linalgsolveex linalglu linalglufactorex linalglusolve linalgsolvetriangular linalgmatrixexp linalglstsq
  linalghouseholderproduct linalgldlfactorex linalgldlsolve cholesky choleskysolve choleskyinverse triangularsolve
  luunpack ormqr geqrf
rnnlayer inputs: mkldnnrnnlayer
rnnlayerbackward inputs: mkldnnrnnlayerbackward
lstm inputs: lstm
gru inputs: gru
rnn inputs: rnn
# Random operators.
dropout mask random: dropout
each2 mask random: nativedropout rreluwithnoise rreluwithnoisefunctional
each1 nothing random: bernoulli randint randintlike rand randlike randn randnlike randnormal randomnormal
  randomnormallike randomuniform randomuniformlike randomstandardnormal truncatednormal randperm normal normalfunctional
  uniform random exponential geometric cauchy lognormal poisson
read1 nothing random: multinomial
- mask random: fuseddropout alphadropout featurealphadropout featuredropout dropout1d dropout2d dropout3d biasdropout
  bitmaskdropout bitmaskbiasdropout rrelu gumbelsoftmax
- nothing random: binomial philoxrand standardgamma samplegamma sampledirichlet inductorrandom inductorrandint
  inductorseeds rng rnguniform rngnormal rngbitgenerator rnggetandupdatestate stochasticconvert
# Collectives and messages.
- nothing communicates: allreduce allreducestart allreducedone allreducecoalesced allgather allgatherbase allgatherstart
  allgatherdone allgathercoalesced allgatherintotensor allgatherintotensorout allgatherintotensorcoalesced allgatherv
  reducescatter reducescatterbase reducescattertensor reducescattertensorcoalesced reducescatterv alltoall alltoallbase
  alltoallsingle alltoallv raggedalltoall broadcast broadcastcoalesced collectivebroadcast collectivepermute
  collectivepermutestart collectivepermutedone collective crossreplicasum reduce send recv senddone recvdone isend irecv
  batchisendirecv recvanysource barrier monitoredbarrier waittensor ncclallreduce ncclallgather ncclreducescatter
  ncclbroadcast ncclbcast ncclreduce ncclsend ncclrecv ncclalltoall mpiallreduce psum pmean pmax pmin ppermute
# Effects outside the outputs, and control flow whose bodies are not part of the graph.
moves inputs effects: assert assignvariable readvariable
- inputs effects: print assertasync functionalassertasync assertscalar functionalassertscalar asserttensormetadata
  infeed outfeed customcall optimizationbarrier afterall createtoken callonce hashtable hashtablefind hashtableimport
  hashtablesize symconstrainrange symconstrainrangeforsize if while case loop scan cond whileloop call fusion map
  sequencemap optimizerstep witheffects
# Known to be pure; their cost is not known.
- inputs: call.open call.close if.open if.close loop.open loop.close scan.open scan.close
- nothing: resize upsample resizebilinear partitionid replicaid input placeholder parameter getattr output
- inputs: arrayfeatureextractor bitwisecount compress cumulativelogsumexp einsum gridsample affinegrid deformconv det
  dft fft irfft rfft rfft2d stft istft roialign maxroipool maxunpool nonmaxsuppression nonmaxsuppressionv4
  nonmaxsuppressionv5 reversesequence rotaryembedding multiheadattention groupqueryattention linearattention
  meanvariancenormalization qlinearmatmul dynamicquantizelinear globallppool l2pool2d conv3dtranspose lut matrixdiag
  matrixsetdiag segmentsum unsortedsegmentmax unsortedsegmentmin unsortedsegmentprod unsortedsegmentsum sparsetodense
  svdf dilate addn complexabs centercroppad melweightmatrix sequenceat sequenceconstruct sequenceempty sequenceerase
  sequenceinsert sequencelength splittosequence concatfromsequence optional optionalgetelement optionalhaselement
  tensorscatter reducewindow selectandscatter dotgeneral clz popcnt getdimensionsize setdimensionsize
  unidirectionalsequencelstm bidirectionalsequencelstm unidirectionalsequencernn bidirectionalsequencernn adagrad
  momentum negativeloglikelihoodloss groupnormbackward symsize symnumel symstride symstorageoffset topp meshgrid
  repeatinterleave cdist bincount cudnnrnnbackward miopenrnnbackward densify causalconvwithstate embeddinglookupsparse
"""


def _table() -> dict[str, Operator]:
    found: dict[str, Operator] = {}
    for line in ROWS.splitlines():
        if not line.startswith((" ", "#")):
            properties, _, line = line.partition(": ")
            cost, gradient, *traits = properties.split()
            entry = Operator(cost.strip("-"), cast(Needs, gradient), frozenset(traits))
        if not line.startswith("#"):
            found.update(dict.fromkeys(line.split(), entry))
    return found


TABLE: dict[str, Operator] = _table()  # operator, as :func:`table_spelling` returns it → its properties
