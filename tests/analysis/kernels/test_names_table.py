"""Kernel names of seven generations and what each of them states: one line per name.

Written from the libraries' naming grammars and from names seen in public traces. A line is

    placement precision family reason-code | compute capability, "-" unknown | kernel name

The expectations were printed by `classify` and then read one by one: the table keeps what was agreed on and is
no independent truth. That is in the counter rows (`test_kernel_names.py`).

Names of AMD's libraries stand under 9.4, as its collectors give gfx94x.
"""

from __future__ import annotations

import pytest

from mpprof.analysis.kernels.names import classify

CASES = r"""
# pascal and older (6.1)
cuda_core fp32 gemm cublas-fma | 6.1 | maxwell_sgemm_128x64_raggedMn_nt
cuda_core fp32 conv_fprop cudnn-fma | 6.1 | maxwell_scudnn_128x128_relu_interior_nn_v1
cuda_core fp32 conv_wgrad cudnn-fma | 6.1 | maxwell_scudnn_128x64_stridedB_splitK_medium_nn_v0
cuda_core fp32 conv_fprop cudnn-fma | 6.1 | maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt_v1
cuda_core fp16 gemm cublas-fma | 6.1 | maxwell_fp16_sgemm_fp16_64x64_tn
cuda_core fp32 conv_fprop cublas-fma | 6.1 | maxwell_cgemm_64x64_tn
cuda_core fp32 conv_fprop cublas-fma | 6.1 | maxwell_gcgemm_64x64_nt
cuda_core fp64 gemm cublas-fma | 6.1 | pascal_dgemm_128x64_nn
cuda_core fp32 conv_fprop cudnn-direct | 6.1 | void cudnn::detail::implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(int, int, int, float const*)
cuda_core fp32 conv_dgrad cudnn-direct | 6.1 | void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)
cuda_core fp32 conv_wgrad cudnn-direct | 6.1 | void cudnn::detail::wgrad_alg0_engine<float, 512, 6, 5, 3, 3, 3, false, 512>(int, int, int, float const*)
not_matmul fp32 norm cudnn-norm | 6.1 | void cudnn::detail::bn_fw_tr_1C11_kernel_new<float, float, 512, true, 1>(cudnnTensorStruct)
not_matmul fp32 pool cudnn-pool | 6.1 | void cudnn::detail::pooling_fw_4d_kernel<float, float, cudnn::detail::maxpooling_func<float>, 0, false>(cudnnTensorStruct)
cuda_core fp16 gemm card-without-tensor-cores | 6.1 | volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn
# volta (7.0)
tensor_core fp16 gemm cublas-mma | 7.0 | volta_h884gemm_256x128_ldg8_nn
tensor_core fp16 gemm cublas-mma | 7.0 | volta_h884gemm_64x128_ldg8_nt
tensor_core fp16 gemm cublas-mma | 7.0 | volta_s884gemm_fp16_64x64_ldg8_f2f_tn
tensor_core fp16 gemm cublas-mma | 7.0 | volta_fp16_s884gemm_fp16_256x64_ldg8_f2f_nt
tensor_core fp16 gemm cublas-mma | 7.0 | volta_fp16_h884gemm_fp16_128x128_ldg8_nn
cuda_core fp32 gemm cublas-fma | 7.0 | volta_sgemm_32x32_sliced1x4_tn
cuda_core fp32 gemm cublas-fma | 7.0 | volta_sgemm_128x64_nn
cuda_core fp16 gemm cublas-fma | 7.0 | volta_fp16_sgemm_fp16_128x32_tn
cuda_core fp16 gemm cublas-fma | 7.0 | volta_sgemm_fp16_64x64_tn
cuda_core fp16 gemm cublas-fma | 7.0 | volta_hgemm_128x64_nn
cuda_core fp64 gemm cublas-fma | 7.0 | volta_dgemm_128x64_tn
cuda_core fp64 gemm cublas-fma | 7.0 | volta_zgemm_64x64_nt
cuda_core fp32 conv_fprop cublas-fma | 7.0 | volta_gcgemm_64x32_nt
tensor_core fp16 conv_fprop cudnn-mma | 7.0 | volta_h884cudnn_128x128_ldg8_relu_exp_medium_nhwc_tn_v1
tensor_core fp16 conv_fprop cudnn-mma | 7.0 | volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_interior_nhwc_tn_v1
tensor_core fp16 conv_dgrad cudnn-mma | 7.0 | volta_fp16_s884cudnn_fp16_128x128_ldg8_dgrad_f2f_exp_interior_nhwc2nchw_tt_v1
tensor_core fp16 conv_wgrad cudnn-mma | 7.0 | volta_fp16_s884cudnn_fp16_256x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1
tensor_core fp16 conv_fprop cudnn-mma | 7.0 | volta_s884cudnn_fp16_128x128_ldg8_splitK_relu_f2f_exp_small_nhwc_tn_v1
cuda_core fp16 conv_fprop cudnn-fma | 7.0 | volta_fp16_scudnn_fp16_128x64_relu_medium_nn_v1
cuda_core fp16 conv_fprop cudnn-fma | 7.0 | volta_fp16_scudnn_fp16_128x32_relu_small_nn_v1
cuda_core fp16 conv_fprop cudnn-fma | 7.0 | volta_fp16_scudnn_winograd_fp16_128x128_ldg1_ldg4_relu_tile148t_nt_v1
cuda_core fp32 conv_dgrad cudnn-fma | 7.0 | volta_scudnn_128x128_stridedB_medium_nn_v1
cuda_core fp32 conv_wgrad cudnn-fma | 7.0 | volta_scudnn_128x64_stridedB_splitK_interior_nn_v1
cuda_core fp32 conv_fprop cudnn-fma | 7.0 | volta_scudnn_128x64_3dconv_fprop_small_nn_v1
cuda_core fp32 conv_fprop cublas-fma | 7.0 | volta_cgemm_64x32_tn
tensor_core fp16 gemm xmma-tensor | 7.0 | sm70_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage1_warpsize2x2x1_tensor8x8x4_kernel
tensor_core fp16 conv_wgrad xmma-tensor | 7.0 | sm70_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x32_stage1_warpsize2x2x1_g1_tensor8x8x4_kernel
tensor_core fp16 conv_fprop xmma-tensor | 7.0 | void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::fprop_indexed::Kernel_traits<xmma_cudnn::Volta_hmma_fp32_traits, xmma_cudnn::Cta_tile<xmma_cudnn::Volta<0>, 64, 128, 32, 2, 2, 1, 1>>>()
tensor_core fp16 conv_fprop xmma-tensor | 7.0 | Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1
tensor_core fp16 gemm cutlass-tensorop | 7.0 | void cutlass::Kernel<cutlass_70_tensorop_f16_s884gemm_f16_128x128_32x2_nn_align8>(T1::Params)
tensor_core fp16 gemm cutlass-tensorop | 7.0 | void cutlass::Kernel<cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_tn_align8>(T1::Params)
cuda_core fp32 conv_fprop cudnn-direct | 7.0 | void explicit_convolve_sgemm<float, int, 512, 6, 8, 3, 3, 5, 0, false>(int, int, int, float const*)
cuda_core fp16 conv_fprop cudnn-direct | 7.0 | void implicit_convolve_hgemm<__half, float, 512, 6, 7, 3, 3, 5, 1, true, false, true>(int, int, int)
cuda_core fp16 conv_wgrad cudnn-direct | 7.0 | void cudnn::cnn::wgrad2d_grouped_direct_kernel<__half, float, int, float, float, 0, 128>(cudnnTensorStruct)
cuda_core fp32 gemm gemv | 7.0 | void gemv2N_kernel<int, int, float, float, float, float, 128, 8, 4, 4, 1, false>(float)
cuda_core fp32 gemm gemv | 7.0 | void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024>(float)
cuda_core fp16 gemm gemv | 7.0 | void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false, true>(float)
not_matmul fp16 gemm splitk-reduction | 7.0 | void splitKreduce_kernel<float, __half, float, float>(cublasSplitKParams<float>)
not_matmul fp32 conv_fprop conv-transform | 7.0 | void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*, int, int, int, int)
not_matmul fp16 conv_fprop conv-transform | 7.0 | void fft2d_c2r_32x32<__half, true, false, 1u, false, false>(__half*, float2 const*, int)
not_matmul fp32 conv_fprop conv-transform | 7.0 | void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(cudnn::winograd::GenerateWinogradTilesParams<float, float>)
not_matmul fp32 conv_wgrad conv-transform | 7.0 | void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataParams<float, float>)
not_matmul fp16 layout layout-helper | 7.0 | void nchwToNhwcKernel<__half, __half, float, true, false>(int, int, int, int, __half const*, __half*)
not_matmul fp16 layout layout-helper | 7.0 | void nhwcAddPaddingKernel<__half, __half, float, true>(int, int, int, int, int)
not_matmul unknown conv_fprop conv-offsets | 7.0 | cudnn::gemm::computeOffsetsKernel(cudnn::gemm::ComputeOffsetsParams)
not_matmul unknown conv_wgrad conv-offsets | 7.0 | cask_cudnn::computeWgradSplitKOffsetsKernel(cask_cudnn::ComputeSplitKOffsetsParams)
not_matmul fp16 norm cudnn-norm | 7.0 | void cudnn::bn_fw_tr_1C11_singleread<__half, 512, true, 1, 2, 0>(cudnnTensorStruct)
not_matmul fp16 elementwise cudnn-pointwise | 7.0 | void cudnn::ops::scalePackedTensor_kernel<__half, float>(long, __half*, float)
not_matmul fp16 elementwise cudnn-pointwise | 7.0 | void op_generic_tensor_kernel<3, __half, float, __half, 256, (cudnnGenericOp_t)8, (cudnnNanPropagation_t)1, 1>()
not_matmul fp16 pool cudnn-pool | 7.0 | void cudnn::ops::pooling_bw_kernel_max<__half, float, cudnn::maxpooling_func<float>, false>(cudnnTensorStruct)
not_matmul fp16 rnn rnn-pointwise | 7.0 | void LSTM_elementWise_fp<__half, __half, float, (cudnnRNNBiasMode_t)2>(int, int, int, int)
not_matmul fp16 rnn rnn-pointwise | 7.0 | void elemWiseRNNcell<__half, float, __half, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int)
# turing (7.5)
tensor_core fp16 gemm cublas-mma | 7.5 | turing_h1688gemm_128x128_ldg8_stages_32x1_nn
tensor_core fp16 gemm cublas-mma | 7.5 | turing_fp16_s1688gemm_fp16_128x256_ldg8_f2f_tn
tensor_core fp16 gemm cublas-mma | 7.5 | turing_s1688gemm_fp16_256x64_sliced1x2_ldg8_f2f_tn
tensor_core fp16 gemm cublas-mma | 7.5 | turing_s1688gemm_128x128_nn
tensor_core fp16 conv_fprop cudnn-mma | 7.5 | turing_h1688cudnn_256x64_sliced1x2_ldg8_relu_exp_large_nhwc_tn_v1
tensor_core fp16 conv_dgrad cudnn-mma | 7.5 | turing_fp16_s1688cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1
tensor_core fp16 conv_wgrad cudnn-mma | 7.5 | turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1
tensor_core int8 gemm cublas-mma | 7.5 | turing_i8816gemm_int8_128x64_ldg16_stages_64x1_nt
tensor_core fp16 conv_fprop cudnn-mma | 7.5 | trt_turing_h1688cudnn_256x128_ldg8_relu_exp_small_nhwc_tn_v1
tensor_core fp16 gemm xmma-tensor | 7.5 | sm75_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize32x32x64_stage1_warpsize2x2x1_tensor16x8x8
tensor_core fp16 conv_dgrad xmma-tensor | 7.5 | sm75_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage1_warpsize2x2x1_g1_tensor16x8x8_t1r3s3_execute_kernel_cudnn
tensor_core fp16 conv_fprop xmma-tensor | 7.5 | sm75_xmma_fprop_implicit_gemm_indexed_wo_smem_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x32x16_stage1_warpsize4x1x1_g1_tensor16x8x8
tensor_core fp16 gemm cutlass-tensorop | 7.5 | void cutlass::Kernel<cutlass_75_tensorop_s1688gemm_f16_128x128_32x2_nt_align8>(T1::Params)
tensor_core fp16 gemm cutlass-tensorop | 7.5 | void cutlass::Kernel<cutlass_75_tensorop_f16_s1688gemm_f16_256x128_32x2_tn_align1>(T1::Params)
tensor_core int8 gemm cutlass-tensorop | 7.5 | void cutlass::Kernel<cutlass_75_tensorop_i8816gemm_s8_256x128_64x2_tn_align16>(T1::Params)
cuda_core fp16 gemm cutlass-simt | 7.5 | void cutlass::Kernel<cutlass_simt_hgemm_128x64_8x2_nn_align1>(T1::Params)
tensor_core fp16 rnn cudnn-mma | 7.5 | void RNN_blockPersist_fp_GRU_HMMA<__half, __half, float, 1, 256>(PersistentParams)
cuda_core int8 gemm cublas-fma | 7.5 | volta_sgemm_int8_128x128_nt
tensor_core fp16 attention memory-efficient-attention | 7.5 | fmha_cutlassF_f16_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)
cuda_core fp32 attention memory-efficient-attention | 7.5 | fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<float>::Params)
tensor_core fp16 attention memory-efficient-attention | 7.5 | fmha_cutlassB_f16_aligned_64x64_k64_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::half_t>::Params)
# ampere and ada (8.0, 8.6, 8.9)
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_fp16_s16816gemm_fp16_256x128_ldg8_relu_f2f_stages_32x3_tn
tensor_core bf16 gemm cublas-mma | 8.0 | ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_nn
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_h16816gemm_256x128_ldg8_stages_32x3_nn
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nt
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_nn
tensor_core tf32 gemm cublas-mma | 8.0 | ampere_s1688gemm_64x64_sliced1x2_nn
cuda_core fp32 gemm cublas-fma | 8.0 | ampere_sgemm_64x32_sliced1x4_nn
cuda_core fp64 gemm cublas-fma | 8.0 | ampere_dgemm_64x64_tt
tensor_core fp64 gemm cublas-mma | 8.0 | ampere_d884gemm_64x64_tt
tensor_core int8 gemm cublas-mma | 8.0 | ampere_i16832gemm_int8_128x128_ldg16_stages_64x3_tn
cuda_core fp32 conv_fprop cublas-fma | 8.0 | ampere_cgemm_64x32_tn
cuda_core fp32 conv_fprop cudnn-fma | 8.0 | ampere_scudnn_128x64_relu_medium_nn_v1
cuda_core fp32 conv_dgrad cudnn-fma | 8.0 | cudnn_ampere_scudnn_128x64_stridedB_small_nn_v1
cuda_core fp32 conv_fprop cudnn-fma | 8.0 | cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
cuda_core fp32 conv_wgrad cudnn-fma | 8.0 | cudnn_train_ampere_scudnn_128x128_stridedB_splitK_small_nn_v1
tensor_core fp16 gemm xmma-tensor | 8.0 | sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize160x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel
tensor_core bf16 gemm xmma-tensor | 8.0 | sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_stage3_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
tensor_core tf32 gemm xmma-tensor | 8.0 | sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_stage3_warpsize2x2x1_tensor16x8x8_kernel
cuda_core fp32 gemm xmma-ffma | 8.0 | sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tensor_core fp64 gemm xmma-tensor | 8.0 | sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage3_warpsize2x2x1_tensor8x8x4_execute_kernel_trt
tensor_core int8 gemm xmma-tensor | 8.0 | sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_kernel
tensor_core fp16 conv_fprop xmma-tensor | 8.0 | sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x256x32_stage3_warpsize2x4x1_g1_tensor16x8x16_execute_kernel_cudnn
tensor_core tf32 conv_fprop xmma-tensor | 8.0 | sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize64x64x64_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn
tensor_core bf16 conv_dgrad xmma-tensor | 8.0 | sm80_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_stage3_warpsize4x1x1_g1_tensor16x8x16_kernel_cudnn
tensor_core fp16 conv_wgrad xmma-tensor | 8.0 | sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x256x32_stage4_warpsize1x4x1_g1_tensor16x8x16_kernel_cudnn
cuda_core fp32 conv_fprop xmma-ffma | 8.0 | sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x64x8_stage3_warpsize1x4x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn
tensor_core fp16 conv_fprop xmma-tensor | 8.0 | sm86_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize64x64x64_stage3_warpsize2x2x1_g1_tensor16x8x16_t1r1s1
cuda_core fp16 depthwise xmma-depthwise | 8.0 | sm80_xmma_depthwise_convolution_fprop_tiling_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize1x8x8_1x5x5_1x1x1_1x1x1_stage2_warpsize4x1x1_g32_execute_kernel__5x_cudnn
tensor_core fp16 conv_wgrad xmma-tensor | 8.0 | void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::wgrad_indexed::Kernel_traits<xmma_cudnn::Ampere_hmma_fp32_traits, xmma_cudnn::Cta_tile<xmma_cudnn::Ampere, 256, 128, 32, 4, 2, 1, 1>>>()
tensor_core tf32 conv_fprop xmma-tensor | 8.0 | void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::fprop_indexed::Kernel_traits<xmma_cudnn::Ampere_hmma_tf32_traits, xmma_cudnn::Cta_tile<xmma_cudnn::Ampere, 128, 64, 32, 2, 2, 1, 1>>>()
tensor_core tf32 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(T1::Params)
tensor_core tf32 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel<cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_nn_align4>(T1::Params)
tensor_core fp16 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x64_32x4_nn_align8>(T1::Params)
tensor_core bf16 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_nt_align8>(T1::Params)
tensor_core bf16 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x64_64x6_tn_align8>(T1::Params)
tensor_core fp64 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(T1::Params)
tensor_core int8 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x128_128x3_tn_align16>(T1::Params)
tensor_core bf16 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_nt_align1>(T1::Params)
cuda_core fp32 gemm cutlass-simt | 8.0 | void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)
cuda_core fp64 gemm cutlass-simt | 8.0 | void cutlass::Kernel2<cutlass_80_simt_dgemm_64x128_8x3_tt_align1>(T1::Params)
tensor_core bf16 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nt_align8>(T1::Params)
tensor_core fp16 conv_fprop cutlass-tensorop | 8.0 | void cutlass_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_256x128_32x3>(T1::Params)
tensor_core fp16 conv_dgrad cutlass-tensorop | 8.0 | void cutlass_cudnn::Kernel<cutlass_tensorop_f16_s16816dgrad_optimized_f16_128x256_32x3_unity_stride>(T1::Params)
tensor_core tf32 conv_wgrad cutlass-tensorop | 8.0 | void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x128_16x4_nhwc_align4>(T1::Params)
tensor_core bf16 conv_fprop cutlass-tensorop | 8.0 | void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s16816fprop_optimized_bf16_64x128_64x3_nhwc_align8>(T1::Params)
tensor_core fp16 gemm cutlass-tensorop-class | 8.0 | void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaMultistage<cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::warp::MmaTensorOp<cutlass::half_t, float>>>>(T1::Params)
cuda_core fp32 gemm cutlass-simt-class | 8.0 | void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::GemmShape<128, 128, 8>, cutlass::gemm::warp::MmaSimt<float>>>>(T1::Params)
tensor_core fp16 conv_wgrad cutlass-tensorop-class | 8.0 | _ZN13cutlass_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageINS_4gemm9GemmShapeILi64ELi256ELi32EEENS4_51Conv2dWgradOutputGradientTileAccessIteratorAnalyticINS_11MatrixShapeILi64ELi32EEENS_6half_tENS6_4warp11MmaTensorOpE
cuda_core fp32 gemm cutlass-simt-class | 8.0 | _ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock12MmaPipelinedINS1_9GemmShapeILi128ELi128ELi8EEENS1_4warp7MmaSimtIfEEEEEEEEvNT_6ParamsE
not_matmul fp16 gemm splitk-reduction | 8.0 | void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128>, cutlass::epilogue::thread::LinearCombination<cutlass::half_t, 8, float>>>(T1::Params)
tensor_core fp16 attention flash-attention | 8.0 | void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>, true, false, false>(Flash_fwd_params)
tensor_core bf16 attention flash-attention | 8.0 | void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t>>(Flash_bwd_params)
not_matmul fp16 attention attention-helper | 8.0 | void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::half_t>>(Flash_bwd_params)
not_matmul fp16 attention attention-helper | 8.0 | void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, cutlass::half_t>>(Flash_fwd_params)
tensor_core bf16 attention memory-efficient-attention | 8.0 | fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)
tensor_core tf32 attention memory-efficient-attention | 8.0 | fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)
cuda_core fp16 attention memory-efficient-attention | 8.0 | fmha_cutlassF_f16_aligned_64x64_rf_sm50(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)
tensor_core fp16 attention flash-attention | 8.0 | fmha_v2_flash_attention_fp16_64_128_S_64_sm80_kernel_nl
tensor_core fp16 attention fmha | 8.0 | void fmha_fprop_fp16_384_64_sm80_kernel<FMHA_kernel_traits<384, 64, 16, 1, 4, 8u, __half>>(FMHA_fprop_params)
tensor_core unknown attention cudnn-sdpa | 8.0 | cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_7_64x64x64_4x1x1_cga1x1x1_kernel0_0
cuda_core fp16 gemm small-n-gemm | 8.0 | void gemmSN_NN_kernel<__half, 256, 4, 2, 8, 2, 4, false>(__half)
cuda_core fp32 gemm small-n-gemm | 8.0 | void gemmSN_TN_kernel_64addr<float, 128, 16, 2, 4, 6, 7, false>(float)
cuda_core fp32 gemm gemv | 8.0 | void gemmk1_kernel<int, float, 256, 5, false, false, false, false>(float)
not_matmul fp16 gemm blas-helper | 8.0 | void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<__half const>>>(float)
not_matmul fp32 gemm blas-helper | 8.0 | void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float const*)
cuda_core fp16 depthwise cudnn-depthwise | 8.0 | void conv2d_c1_k1_nhwc_kernel<__half, float, float, 3, 3>(cudnnTensorStruct)
cuda_core fp16 depthwise cudnn-depthwise | 8.0 | void cudnn::cnn::dgrad2d_c1_k1_nchw_kernel<__half, float, 3>(cudnnTensorStruct)
cuda_core fp16 conv_wgrad cudnn-direct | 8.0 | void cudnn::cnn::wgrad_alg1_engine_NHWC<__half, float, 128, 6, 8, 3, 3, 5, false, true>(int, int, int, __half const*)
cuda_core fp16 conv_fprop cudnn-direct | 8.0 | void convolve_common_engine_float_NHWC<__half, __half, 128, 5, 5, 3, 3, 3, 1, true, false>(int, int, int)
cuda_core fp16 depthwise framework-depthwise | 8.0 | void tensorflow::DepthwiseConv2dGPUKernelNCHWSmall<(tensorflow::DepthwiseConv2dDirection)0, 2, 2, 16, true, Eigen::half, float>(tensorflow::DepthwiseArgs)
cuda_core fp16 depthwise framework-depthwise | 8.0 | void tensorflow::DepthwiseConv2dBackpropFilterGPUKernelNHWCSmall<Eigen::half, 4, 8, 3, 3, float>(tensorflow::DepthwiseArgs)
tensor_core fp8 gemm xmma-tensor | 8.9 | sm89_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x128x64_stage3_warpsize2x2x1_tensor16x8x32_kernel
tensor_core fp8 gemm xmma-tensor | 8.9 | sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_execute_kernel__5x_cublas
# hopper (9.0)
tensor_core fp16 gemm xmma-wgmma | 9.0 | sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas
tensor_core bf16 gemm xmma-wgmma | 9.0 | sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
tensor_core fp8 gemm xmma-wgmma | 9.0 | sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_bias_bf16_execute_segment_k_off_kernel__5x_cublas
tensor_core tf32 gemm xmma-wgmma | 9.0 | sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
tensor_core fp16 conv_fprop xmma-wgmma | 9.0 | sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
tensor_core fp16 gemm nvjet | 9.0 | nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT
tensor_core bf16 gemm nvjet | 9.0 | nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNN
tensor_core fp16 gemm nvjet | 9.0 | nvjet_sm90_hss_320x128_64x3_1x2_h_bz_coopB_NTT
tensor_core bf16 gemm nvjet | 9.0 | nvjet_tss_64x64_64x13_2x1_v_bz_splitK_NNT
tensor_core fp8 gemm nvjet | 9.0 | nvjet_qqtst_128x256_128x4_2x1_v_bz_TNT
tensor_core tf32 gemm nvjet | 9.0 | nvjet_sss_tf32_128x256_TNT
tensor_core bf16 gemm cutlass3-tensorop | 9.0 | void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_1x2x1_0_tnt_align8_warpspecialized_cooperative_epi_tma>(T1::Params)
tensor_core fp8 gemm cutlass3-tensorop | 9.0 | void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x256x32gemm_e4m3_e4m3_f32_bf16_bf16_128x256x128_2x1x1_0_tnt_align16>(T1::Params)
tensor_core tf32 gemm cutlass3-tensorop | 9.0 | cutlass3x_sm90_tensorop_s64x128x8gemm_tf32_tf32_f32_f32_f32_128x128x32_2x1x1_0_tnn_align4_warpspecialized_epi_nosmem
tensor_core int8 gemm cutlass3-tensorop | 9.0 | cutlass3x_sm90_tensorop_i64x128x32gemm_s8_s8_s32_s8_s8_128x128x128_2x1x1_0_tnt_align16
tensor_core fp8 gemm cutlass-gmma | 9.0 | void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<7>, cutlass::float_e4m3_t>>>(T1::Params)
tensor_core fp16 gemm cutlass-gmma | 9.0 | void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7>, cutlass::half_t>>>(T1::Params)
tensor_core bf16 gemm cute-mma-atom | 9.0 | void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::TiledMMA<cute::MMA_Atom<cute::SM90_64x256x16_F32BF16BF16_SS<1, 1>>>>>(T1::Params)
tensor_core fp16 gemm cute-mma-atom | 9.0 | void my_product<cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32F16F16F32_TN>>>(float*)
tensor_core tf32 gemm cute-mma-atom | 9.0 | void my_product<cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x8_F32TF32TF32F32_TN>>>(float*)
tensor_core bf16 attention flash-attention | 9.0 | void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>>, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>>>(T1::Params)
not_matmul bf16 attention attention-helper | 9.0 | void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>, 256, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>(T1::Params)
not_matmul fp16 attention attention-helper | 9.0 | void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<128>>, cutlass::half_t, float>>(T1::Params)
tensor_core bf16 attention flash-attention | 9.0 | void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16_t>>(Flash_fwd_mla_params)
tensor_core unknown attention cudnn-sdpa | 9.0 | cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_31_64x128x64_1x1x1_cga1x1x1_kernel0_0
tensor_core unknown conv_fprop cudnn-runtime-fusion | 9.0 | cudnn_generated_fort_native_sm80_convFwd_pointwise_pointwise
tensor_core fp8 gemm deep-gemm | 9.0 | void deep_gemm::fp8_gemm_kernel<7168u, 4096u, 128u, 128u, 128u, 1u, 5u>(__nv_bfloat16*, float*, int*, unsigned int)
tensor_core fp8 gemm deep-gemm | 9.0 | void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u>(float*)
not_matmul unknown comm expert-parallel | 9.0 | void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)
cuda_core fp16 gemm gemv | 9.0 | std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, false, true, true, false, 7, false>(float)
cuda_core bf16 attention flashinfer-decode | 9.0 | void flashinfer::BatchDecodeWithPagedKVCacheKernel<2, 8, 16, __nv_bfloat16>()
unknown fp16 gemm odd-legacy-name | 9.0 | volta_h16gemm_<FP16,FP16,float>_nt_v1
# blackwell (10.0, 12.0)
tensor_core bf16 gemm nvjet | 10.0 | nvjet_sm100_tst_128x256_64x6_2x1_2cta_h_bz_TNT
tensor_core fp16 gemm nvjet | 10.0 | nvjet_sm100_hsh_256x128_64x5_2x2_2cta_h_bz_TNN
tensor_core fp8 gemm nvjet | 10.0 | nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT
tensor_core fp4 gemm nvjet | 10.0 | nvjet_sm100_ootst_128x192_256x4_2x1_2cta_v_bz_TNT
tensor_core bf16 gemm nvjet | 12.0 | nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN
tensor_core bf16 gemm cutlass3-tensorop | 10.0 | cutlass3x_sm100_tensorop_s256x128x16gemm_bf16_bf16_f32_bf16_bf16_256x128x64_0_tnt_align8_2sm
tensor_core fp4 gemm cutlass3-tensorop | 10.0 | cutlass3x_sm100_bstensorop_s128x128x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_bf16_bf16_128x128x256_0_tnn
tensor_core fp8 gemm cutlass3-tensorop | 10.0 | cutlass3x_sm100_bstensorop_s128x192x32gemm_block_scaled_ue8m0xe4m3_ue8m0xe4m3_f32_bf16_bf16_128x192x128_0_tnn
cuda_core fp32 gemm cutlass-simt | 10.0 | cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu
tensor_core fp8 gemm trtllm-gemm | 10.0 | bmm_E4m3_E4m3E4m3_Fp32_t128x64x128u2_s6_et64x64_m64x64x32_cga1x1x1_16dp256b_rM_TN_transOut_sm100f
tensor_core fp4 gemm trtllm-gemm | 10.0 | bmm_Bfloat16_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x64x512_s4_et128x64_m128x64x64_cga1x1x1_16dp256b_TN_sm100f
tensor_core bf16 attention fmha | 10.0 | fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ128Kv128StaticContext
tensor_core bf16 gemm cutlass-gmma | 10.0 | void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm100TmaUmmaWarpSpecialized<5, 2>, cutlass::bfloat16_t>>>(T1::Params)
# amd
matrix_core fp16 gemm tensile-mfma | 9.4 | Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_K1_ISA942.kd
matrix_core fp32 gemm tensile-mfma | 9.4 | Cijk_Alik_Bljk_SB_MT64x64x16_MI16x16x4x1_SN_ISA90a
cuda_core fp64 gemm tensile-fma | 9.4 | Cijk_Ailk_Bljk_DB_MT32x32x8_SE_TT4_4_WG8_8_1
cuda_core fp32 gemm tensile-fma | 9.4 | Cijk_Alik_Bljk_SB_MT64x64x8_SE_K1_TT4_4_WG16_16_1
matrix_core fp8 gemm tensile-mfma | 9.4 | Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x128_MI16x16x1_SN
matrix_core bf16 conv_wgrad miopen-igemm | 9.4 | igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1.kd
matrix_core fp16 conv_dgrad miopen-igemm | 9.4 | igemm_bwd_gtcx3_nhwc_fp16_bx0_ex0_bt64x64x32_wt16x16x16_ws1x1_wr2x2.kd
cuda_core fp32 conv_fprop miopen-direct | 9.4 | miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f3x2_stride1.kd
matrix_core bf16 gemm composable-kernel | 9.4 | void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::bhalf_t>>()
matrix_core fp16 conv_fprop composable-kernel | 9.4 | void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleABD_xdl_cshuffle<_Float16, float>>()
not_matmul unknown conv_fprop im2col | 9.4 | Im2d2Col.kd
not_matmul unknown norm miopen-norm | 9.4 | MIOpenBatchNormFwdTrainSpatial.kd
not_matmul unknown copy memcpy | 9.4 | __amd_rocclr_copyBuffer.kd
# any card: frameworks
unknown unknown gemm triton-dot | - | gemm_fusion_dot_general_3
not_matmul unknown elementwise xla-loop-fusion | - | loop_add_multiply_fusion_1
not_matmul unknown layout xla-loop-fusion | - | loop_transpose_fusion
not_matmul unknown reduce xla-loop-fusion | - | input_reduce_fusion_12
not_matmul unknown gather_scatter xla-loop-fusion | - | input_scatter_fusion
not_matmul unknown layout xla-loop-fusion | - | input_concatenate_fusion
not_matmul unknown cast xla-wrapped | - | wrapped_convert
not_matmul unknown elementwise xla-wrapped | - | wrapped_broadcast_2
unknown unknown gemm xla-wrapped | - | wrapped_dot
unknown unknown other no-evidence | - | fusion_7
not_matmul unknown softmax triton-softmax | - | triton_softmax_computation_4
not_matmul unknown norm inductor | - | triton_poi_fused_add_native_layer_norm_relu_3
not_matmul unknown reduce inductor | - | triton_red_fused_mean_5
unknown unknown gemm inductor | - | triton_tem_fused_mm_2
not_matmul mixed cast tf-mlir | - | Cast_GPU_DT_FLOAT_DT_HALF_kernel
not_matmul fp16 elementwise tf-mlir | - | AddV2_GPU_DT_HALF_DT_HALF_kernel
not_matmul fp32 loss_scale tf-mlir | - | IsFinite_GPU_DT_FLOAT_DT_BOOL_kernel
not_matmul fp32 loss_scale eigen-is-finite | - | void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<bool, 1, 1, int>>, Eigen::TensorCwiseUnaryOp<Eigen::internal::scalar_isfinite_op<float>>>>>()
not_matmul mixed cast eigen-cast | - | void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<Eigen::half, 1, 1, long>>, Eigen::TensorConversionOp<Eigen::half, Eigen::TensorMap<Eigen::Tensor<float const, 1, 1, long>>>>>>()
not_matmul fp32 reduce tf-reduce | - | void tensorflow::functor::ColumnReduceKernel<float const*, float*, cub::Sum>(float const*)
not_matmul fp16 reduce tf-reduce | - | void tensorflow::BiasGradNHWC_SharedAtomics<Eigen::half>(int, Eigen::half const*)
not_matmul fp16 gather_scatter tf-gather | - | void tensorflow::GatherOpKernel<Eigen::half, int, true>(Eigen::half const*)
not_matmul unknown layout tf-permute | - | void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned short, 256, 32, 32, false>()
not_matmul fp32 optimizer tf-optimizer | - | void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*, float*)
not_matmul fp32 random tf-random | - | void tensorflow::functor::FillPhiloxRandomKernelLaunch<tensorflow::random::UniformDistribution<tensorflow::random::PhiloxRandom, float>>()
not_matmul fp16 elementwise torch-native | - | void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3>>(int)
not_matmul mixed cast torch-cast | - | void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, 2>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1>>(int)
not_matmul fp16 reduce torch-native | - | void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half, at::native::MeanOps<c10::Half, float, float, c10::Half>, unsigned int, c10::Half, 4>>(at::native::ReduceOp<float>)
not_matmul fp32 optimizer torch-native | - | void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4>>()
not_matmul unknown loss_scale torch-native | - | void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>, at::native::amp_foreach_non_finite_check_and_unscale>()
cuda_core fp16 depthwise torch-depthwise | - | void at::native::conv_depthwise2d_forward_kernel<3, c10::Half, int>(at::GenericPackedTensorAccessor<c10::Half const, 4ul>)
not_matmul fp16 pool torch-native | - | void at::native::(anonymous namespace)::atomicadaptivemaxgradinput<c10::Half>(c10::Half*, c10::Half const*, long const*, int, int)
not_matmul unknown gather_scatter torch-native | - | void at::native::(anonymous namespace)::apply_kernel<128, 4, at::native::(anonymous namespace)::binary_op_intersection_kernel<int>()>(int)
not_matmul fp16 gather_scatter torch-native | - | void at::native::(anonymous namespace)::flag_kernel<512, 16, c10::Half>(c10::Half const*, long*, long const*, long, long, int)
not_matmul fp16 reduce torch-native | - | void at::cuda::cub::impl::transform_vals<c10::Half*, c10::Half const*, c10::Half*, std::plus<c10::Half>>(c10::Half*, c10::Half const*)
not_matmul fp16 reduce torch-native | - | void at::native::lpmax_cleanup<c10::Half>(c10::Half const*, at::native::TensorListAddresses, int)
not_matmul fp16 elementwise torch-native | - | void at::native::(anonymous namespace)::_elemwise_kernel<128, 4, f<c10::Half>>(int)
not_matmul fp16 conv_fprop im2col | - | void at::native::vol2im_kernel<c10::Half, c10::Half>(long, c10::Half const*, unsigned int, unsigned int)
not_matmul fp32 gather_scatter words | - | void (anonymous namespace)::indexing_backward_kernel_small_stride<float>(long const*, long const*, float const*, float*)
not_matmul unknown random words | - | void (anonymous namespace)::randperm_handle_duplicate_keys_kernel<int, at::native::(anonymous namespace)::OpaqueType<1>>(int*)
not_matmul fp16 norm torch-native | - | void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int, float)
not_matmul unknown gather_scatter cub | - | void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<int, int, int>::Policy800, false, int, int>(int*)
not_matmul fp16 comm nccl | - | ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
not_matmul fp32 comm nccl | - | ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)
not_matmul unknown copy memcpy | - | Memcpy HtoD (Pageable -> Device)
not_matmul unknown memset memset | - | [CUDA memset]
unknown unknown other no-evidence | - | foo_kernel
unknown unknown other no-evidence | - | kernel0
unknown unknown other no-evidence | - | void Kernel2<T1>(T1::Params)
unknown unknown other no-evidence | - | void gemm_lowprec_t<0, 2, 128, 128>(const unsigned char *, const unsigned char *, float *, int, int, int)
unknown unknown other no-evidence | - | _ZN12_GLOBAL__N_111mlp_forwardIfEEvPT_
not_matmul fp16 elementwise words | - | void fused_bias_gelu_kernel<__half>(__half*, __half const*)
tensor_core fp16 gemm named-instruction | - | void gemm_wmma_t<128, 128, 3>(const __half *, const __half *, float *, int, int, int)
# volta: seen in public traces and issue reports (7.0)
cuda_core fp32 conv_fprop cudnn-direct | 7.0 | void cudnn::winograd::winograd3x3Kernel<float, float, int=4, int=1, int=8, bool=0>(cudnn::maxwell::winograd::KernelParams)
cuda_core fp32 conv_fprop fermi-gemm | 7.0 | void fermiCgemm_v3_kernel<bool=1, bool=0, bool=0, bool=0, int=5, int=5, int=3, int=8, int=8>(int, int, int, float2 const *)
cuda_core fp32 conv_fprop fermi-gemm | 7.0 | fermiPlusCgemmLDS128_batched
not_matmul fp16 elementwise elementwise-kernel | 7.0 | void kernelPointwiseApply2<ThresholdUpdateOutput<at::Half>, at::Half, at::Half, unsigned int, int=1, int=1>(OffsetInfo<ThresholdUpdateOutput<at::Half>, at::Half, unsigned int>)
not_matmul fp32 other upsample | 7.0 | void nearest_neighbor_4d_kernel<float, float>(int, THCDeviceTensor<float, int=4, int, DefaultPtrTraits>)
not_matmul fp32 gemm blas-helper | 7.0 | void transpose_readWrite_alignment_kernel<float2, float2, int=1, bool=0, int=6, int=4, int=4>(cublasTransposeParams<float2>, float2 const *)
cuda_core fp32 conv_fprop cublas-fma | 7.0 | volta_cgemm_32x64_tn
cuda_core fp32 conv_dgrad cudnn-direct | 7.0 | void cudnn::detail::dgrad2d_alg1_1<float, int=0, int=6, int=7, int=5, int=4, int=5, bool=0, bool=1>(int)
cuda_core fp16 conv_wgrad cudnn-direct | 7.0 | void cudnn::detail::wgrad_alg0_engine<__half, int=128, int=6, int=8, int=3, int=3, int=5, bool=1, int=512>(int)
cuda_core fp16 depthwise framework-depthwise | 7.0 | spatialDepthwiseConvolutionUpdateOutput<c10::Half>
cuda_core fp16 depthwise framework-depthwise | 7.0 | void spatialDepthwiseConvolutionUpdateOutput<at::Half, float, unsigned int, int=0>(THCDeviceTensor)
cuda_core fp16 depthwise framework-depthwise | 7.0 | void spatialDepthwiseConvolutionAccGradParameters<at::Half, float, unsigned int, 0>(x)
tensor_core fp16 gemm cublas-mma | 7.0 | volta_fp16_s884gemm_fp16_64x64_ldg8_relu_f2f_stages_32x1_nn
cuda_core fp16 gemm cublas-fma | 7.0 | volta_fp16_sgemm_fp16_32x128_nn
tensor_core fp16 gemm cublas-mma | 7.0 | volta_h884gemm_64x64_ldg8_nn
tensor_core fp16 gemm cublas-mma | 7.0 | volta_s884gemm_64x128_ldg8_nn
cuda_core fp32 conv_fprop cudnn-fma | 7.0 | volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
cuda_core fp32 conv_fprop cudnn-fma | 7.0 | volta_scudnn_128x64_relu_xregs_large_nn_v1
cuda_core fp16 conv_fprop cudnn-fma | 7.0 | volta_fp16_scudnn_winograd_fp16_128x128_ldg1_ldg4_mobile_relu_tile148t_nt_v1
cuda_core fp32 gemm small-n-gemm | 7.0 | void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false, cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float>>
cuda_core fp16 gemm small-n-gemm | 7.0 | void gemmSN_TN_kernel<__half, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<__half const>>
cuda_core fp32 gemm small-n-gemm | 7.0 | void gemmSN_TN_kernel_64addr<float, 128, 16, 2, 4, 4, 4, true>
cuda_core fp32 gemm gemv | 7.0 | void gemmk1_kernel<float, 256, 5, false, false, false, false>(cublasGemmk1Params<float>)
cuda_core fp32 gemm gemv | 7.0 | void gemmk1_kernel<int, float, 256, 5, false, false, false, false, cublasGemvTensorStridedBatched<float const>>
not_matmul fp16 gemm blas-helper | 7.0 | void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<__half const>, cublasGemvTensorStridedBatched<__half>>>
cuda_core fp16 gemm gemv | 7.0 | void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false, false, cublasGemvParams>
cuda_core fp32 gemm gemv | 7.0 | void ger_kernel<float>
not_matmul fp32 gemm blas-helper | 7.0 | void scal_kernel<float, float, 1, true, 6, 5, 5, 3>
tensor_core fp16 conv_dgrad cudnn-listed | 7.0 | void dgrad_1x1_stride_2x2<__half, float>
cuda_core fp16 conv_fprop cudnn-fma | 7.0 | volta_fp16x2_hcudnn_fp16x2_128x64_relu_small_nn_v1
# turing: seen in public traces and issue reports (7.5)
tensor_core fp16 conv_fprop cudnn-mma | 7.5 | turing_fp16_s1688cudnn_fp16_256x128_ldg8_relu_filter1x1_stg8_interior_nchw_nn_v1
tensor_core fp16 conv_fprop cudnn-mma | 7.5 | turing_fp16_s1688cudnn_fp16_256x64_sliced1x2_ldg8_relu_f2f_exp_small_nhwc_tn_v1
tensor_core int8 conv_fprop cutlass-tensorop | 7.5 | cutlass_tensorop_s4_i8832fprop_optimized_s4_128x128_128x2_nhwc
tensor_core fp16 gemm cublas-mma | 7.5 | turing_h1688gemm_128x64_sliced1x2_ldg8_nn
tensor_core fp16 gemm cublas-mma | 7.5 | turing_s1688gemm_fp16_64x64_sliced1x4_ldg8_f2f_tn
tensor_core fp16 gemm cublas-mma | 7.5 | turing_fp16_s1688gemm_fp16_128x128_ldg8_relu_f2f_stages_32x1_tn
tensor_core fp16 conv_wgrad cudnn-mma | 7.5 | turing_s1688cudnn_fp16_128x128_ldg4_wgrad_idx_exp_interior_nhwc_nt_v1
tensor_core int8 gemm cublas-mma | 7.5 | turing_i8816gemm_int8_i8i32_f32_128x128_ldg16_tn
tensor_core int8 conv_fprop cudnn-mma | 7.5 | turing_int8_i8816cudnn_int8_256x64_ldg16_relu_singleBuffer_small_nt_v1
tensor_core int8 gemm cublas-mma | 7.5 | turing_int8_i8816gemm_int8_128x64_ldg16_relu_stages_64x1_tn
cuda_core fp32 gemm cublas-fma | 7.5 | turing_sgemm_128x64_nn
cuda_core fp32 gemm cublas-fma | 7.5 | volta_sgemm_128x32_sliced1x4_tn
cuda_core fp32 conv_fprop cudnn-fma | 7.5 | turing_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
tensor_core fp16 conv_fprop xmma-tensor | 7.5 | sm75_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage1_warpsize2x2x1_g1_tensor16x8x8_t1r1s1
tensor_core int8 conv_fprop xmma-tensor | 7.5 | sm72_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32_tilesize128x64x64_stage1_warpsize2x2x1_g1_tensor8x8x16_t1r1s1
tensor_core fp16 conv_fprop cudnn-mma | 7.5 | turing_fp16_s884cudnn_fp16
cuda_core fp16 conv_fprop cudnn-fma | 7.5 | trt_turing_fp16x2_hcudnn_fp16x2_128x128_relu_interior_nn_v1
cuda_core fp16 conv_fprop cudnn-fma | 7.5 | trt_volta_fp16x2_hcudnn_winograd_fp16x2_128x128_ldg1_ldg4_relu_tile148t_nt_v1
cuda_core int8 conv_fprop cudnn-fma | 7.5 | trt_volta_int8x4_icudnn_int8x4_128x64_relu_small_c32_nn_v1
tensor_core int8 conv_fprop cudnn-mma | 7.5 | trt_turing_int8_i8816cudnn_int8_256x64_ldg16_relu_small_t1r1s1_nt_v1
cuda_core int8 conv_fprop cudnn-fma | 7.5 | volta_int8x4_icudnn_int8x4_128x128_relu_interior_c32_nn_v1
# ampere: seen in public traces and issue reports (8.0)
tensor_core bf16 gemm cutlass-tensorop | 8.0 | cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn
tensor_core bf16 gemm cublas-mma | 8.0 | ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn
tensor_core bf16 gemm cublas-mma | 8.0 | ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn
cuda_core fp32 gemm cublas-fma | 8.0 | ampere_sgemm_32x128_tn
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_s16816gemm_fp16_128x64_ldg8_stages_64x4_tn
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_h1688gemm_128x128_ldg8_stages_32x3_tn
tensor_core fp16 gemm cublas-mma | 8.0 | ampere_h16816gemm_256x128_ldg8_stages_32x3_tn
cuda_core fp32 conv_fprop cublas-fma | 8.0 | ampere_gcgemm_64x64_tn
tensor_core fp64 gemm cublas-mma | 8.0 | ampere_d884gemm_64x64_ldg8_nn
cuda_core fp16 gemm cublas-fma | 8.0 | ampere_fp16_sgemm_fp16_64x32_sliced1x4_nn
cuda_core bf16 gemm cublas-fma | 8.0 | ampere_bf16_sgemm_bf16_64x32
cuda_core fp16 gemm cublas-fma | 8.0 | ampere_sgemm_fp16_128x64
tensor_core tf32 gemm cublas-mma | 8.0 | ampere_tf32_s1688gemm_tf32_128x128
tensor_core tf32 conv_fprop xmma-tensor | 8.0 | sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn
tensor_core tf32 conv_dgrad xmma-tensor | 8.0 | sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x256x32_stage3_warpsize2x4x1_g1_tensor16x8x8_kernel_cudnn
unknown bf16 conv_wgrad xmma-unstated | 8.0 | sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x32
cuda_core fp32 conv_fprop cudnn-fma | 8.0 | _5x_cudnn_ampere_scudnn_128x64_relu_medium_nn_v1
cuda_core fp16 conv_fprop cudnn-fma | 8.0 | _5x_cudnn_volta_fp16_scudnn_winograd_fp16_128x128_ldg1_ldg4_relu_tile148t_nt_v0
tensor_core fp16 conv_fprop cutlass-tensorop | 8.0 | cutlass_cudnn_infer::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x3_nhwc_align8>
tensor_core bf16 conv_wgrad cutlass-tensorop | 8.0 | void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s16816wgrad_optimized_bf16_128x256_32x3_nhwc_align4>(x)
tensor_core tf32 conv_fprop cutlass-tensorop | 8.0 | void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>
cuda_core fp32 gemm cutlass-simt | 8.0 | void cutlass::Kernel<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(T1::Params)
tensor_core bf16 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)
tensor_core tf32 gemm cutlass-tensorop | 8.0 | void cutlass::Kernel2<cutlass_80_tensorop_c1688tf32gemm>
cuda_core fp64 gemm cutlass-simt | 8.0 | void cutlass::Kernel2<cutlass_80_simt_dgemm_128x128>
tensor_core fp16 conv_wgrad named-instruction | 8.0 | void cutlass_cudnn::library::image_network_first_layer_hmma_wgrad_kernel<__half>
tensor_core unknown conv_fprop named-instruction | 8.0 | cutlass_cudnn::library::image_network_first_layer_hmma_fprop_kernel
tensor_core unknown attention cudnn-sdpa | 8.0 | cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_32_64x64x64_4x1x1_kernel0_0
not_matmul unknown layout layout-helper | 8.0 | void tensorflow::functor::NHWCToNCHW
not_matmul fp16 softmax tf-softmax | 8.0 | void tensorflow::(anonymous namespace)::GenerateNormalizedProb<Eigen::half, float, 8>
not_matmul mixed cast tf-mlir | 8.0 | Cast_GPU_DT_HALF_DT_FLOAT_kernel
not_matmul fp16 elementwise tf-mlir | 8.0 | Relu_GPU_DT_HALF_DT_HALF_kernel
not_matmul fp16 elementwise tf-mlir | 8.0 | AddV2_GPU_DT_HALF_DT_HALF_kernel_1d
not_matmul fp16 loss_scale tf-mlir | 8.0 | IsFinite_GPU_DT_HALF_DT_BOOL_kernel
not_matmul fp16 gemm splitk-reduction | 8.0 | void splitKreduce_kernel<32, 16, int, float, __half, float, __half, true, true, false>
not_matmul unknown conv_fprop conv-offsets | 8.0 | void cask_plugin_cudnn::xmma_cudnn::init_device_mask_mapper_kernel
not_matmul fp32 conv_fprop conv-transform | 8.0 | void fft2d_c2r_16x16<float>
not_matmul unknown other cufft | 8.0 | void DSE::regular_fft_pad<0, 1, 256, 32, 32, 1>
not_matmul fp32 conv_fprop conv-transform | 8.0 | void pointwise_mult_and_sum_complex<float2, 8, 4>
not_matmul fp32 conv_fprop conv-transform | 8.0 | void flip_filter<float, float>
not_matmul fp16 pool cudnn-pool | 8.0 | void cudnn::ops::pooling_fw_4d_kernel<__half>
not_matmul fp16 rnn rnn-pointwise | 8.0 | void elemWiseRNNcell<__half>
cuda_core fp16 rnn cudnn-fma | 8.0 | void RNN_blockPersist_fp_LSTM<__half>
not_matmul fp16 rnn rnn-pointwise | 8.0 | void LSTM_elementWise_bp1<__half>
not_matmul fp16 rnn rnn-pointwise | 8.0 | void GRU_elementWise_fp<__half>
# ada: seen in public traces and issue reports (8.9)
tensor_core fp8 gemm xmma-tensor | 8.9 | sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x32_aACC
tensor_core fp8 gemm cutlass-tensorop | 8.9 | cutlass_89_tensorop_bf16_s16832gemm_e4m3_128x64_64x3
tensor_core bf16 gemm xmma-tensor | 8.9 | sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize32x32x64_stage5_warpsize2x2x1_tensor16x8x16_kernel
# hopper: seen in public traces and issue reports (9.0)
tensor_core unknown gemm marlin | 9.0 | marlin_moe_wna16::Marlin
tensor_core bf16 gemm marlin | 9.0 | void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899907892224l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)
not_matmul unknown comm collective | 9.0 | cross_device_reduce_1stage
unknown unknown gemm inductor | 9.0 | triton_tem_fused_mm_t_0
tensor_core fp8 attention flash-attention | 9.0 | flash_fwd_splitkv_mla_fp8_sparse
tensor_core bf16 gemm nvjet | 9.0 | nvjet_sm90_tst_384x80_64x3_4x1_v_bz_coopA_TNT
tensor_core fp16 gemm xmma-wgmma | 9.0 | sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
tensor_core fp8 gemm cutlass3-tensorop | 9.0 | cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_f32_e5m2_64x128x128_1x2x1_0_tnn_align16_warpspecialized_pingpong_fp8_fastaccum_epi_nosmem
tensor_core fp8 gemm deep-gemm | 9.0 | void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 2112u, 7168u, 1u, 64u, 128u, 128u, 128u, 128u, 128u, 4u, 128u, 128u, 1u, false, 132u, (deep_gemm::GemmType)0>(float*, int*)
not_matmul fp32 layout deep-gemm-helper | 9.0 | void deep_gemm::transpose_fp32<512u, 64u, 28u>(float const*, float*, unsigned int)
not_matmul fp32 layout deep-gemm-helper | 9.0 | void deep_gemm::smxx_layout::pack_fp32_into_ue8m0
tensor_core tf32 gemm deep-gemm | 9.0 | void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<1>
tensor_core fp8 gemm deep-gemm | 9.0 | sm90_fp8_mega_moe_l1_impl
tensor_core fp16 attention flash-attention | 9.0 | void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 32, 4, false, false, cutlass::half_t>>(pytorch_flash::Flash_fwd_params)
tensor_core bf16 attention flash-attention | 9.0 | void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t>>(pytorch_flash::Flash_bwd_params)
tensor_core fp16 attention flash-attention | 9.0 | void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cutlass::half_t>>>(T1::Params)
tensor_core bf16 attention flash-attention | 9.0 | void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2, 2, 2, cutlass::bfloat16_t>>>>(T1::Params)
not_matmul bf16 attention attention-helper | 9.0 | void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<128>, cute::C<128>>, cutlass::bfloat16_t, float, cutlass::arch::Sm90, true, false>>(T1::Params)
not_matmul bf16 attention attention-helper | 9.0 | void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<cute::C<80>, cute::C<128>>, cutlass::bfloat16_t, float, cutlass::arch::Sm90, 256>>(T1::Params)
not_matmul unknown attention attention-helper | 9.0 | void flash::prepare_varlen_num_blocks_kernel<1, true>(x)
tensor_core unknown attention flash-attention | 9.0 | void flash::compute_attn_ws<Ktraits>
tensor_core unknown attention flash-attention | 9.0 | flash_fwd_mla_kernel
not_matmul bf16 attention attention-helper | 9.0 | void flash::flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, float, 512>
tensor_core bf16 attention flash-attention | 9.0 | void sm90::flash_fwd_splitkv_mla_kernel<sm90::Traits<cutlass::bfloat16_t>>
tensor_core fp8 gemm cutlass-gmma | 9.0 | void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int,int,int,int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<4, cute::tuple<cute::C<2>>, cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8FastAccum>, cute::tuple<cute::C<128>>, cutlass::float_e4m3_t, cutlass::float_e4m3_t>>>
tensor_core bf16 gemm cute-mma-atom | 9.0 | _ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective13CollectiveMmaINS1_34MainloopSm90TmaGmmaWarpSpecializedILi7ENS5_IJNS4_1CILi2EEENSA_ILi1EEESC_EEENS1_35KernelTmaWarpSpecializedCooperativeEEENS5_IJNSA_ILi128EEESG_NSA_ILi64EEEEEENS_10bfloat16_tENS5_IJlSC_lEEESJ_SK_NS4_8TiledMMAINS4_8MMA_AtomIJNS4_4SM904GMMA28MMA_64x128x16_F32BF16BF16_SSILNSO_5MajorE0ELSQ_0ELNSO_7ScaleInE1ELSR_1EEEEEE
tensor_core unknown attention cudnn-sdpa | 9.0 | cudnn_generated_fort_native_sdpa_sm90_knob_7_64x128x128_4x1x1_kernel0_0
tensor_core unknown attention flash-attention | 9.0 | kernel_cutlass_kernel_flash_attn_cute_flash_fwd_sm90FlashAttentionForwardSm90_object_at__tensorptrbf16
tensor_core tf32 gemm xmma-wgmma | 9.0 | sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
cuda_core fp32 gemm xmma-ffma | 9.0 | sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tensor_core fp64 gemm xmma-tensor | 9.0 | sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x16_stage3_warpsize2x2x1_tensor8x8x4_kernel
tensor_core fp16 conv_fprop xmma-tensor | 9.0 | sm80_xmma_fprop_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn
tensor_core fp16 conv_fprop xmma-wgmma | 9.0 | sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_strided_execute_kernel__5x_cudnn
tensor_core tf32 conv_dgrad xmma-tensor | 9.0 | sm80_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn
not_matmul fp16 conv_wgrad xmma-helper | 9.0 | sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage3_warpsize2x2x1_g1_tensor16x8x16_execute_split_k_kernel__5x_cudnn
not_matmul fp32 gemm xmma-helper | 9.0 | sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_split_k_kernel__5x_cublas
not_matmul fp32 conv_wgrad xmma-helper | 9.0 | sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32_warpgroupsize1x1x1_g1_execute_split_k_kernel__5x_cudnn
cuda_core fp32 conv_fprop xmma-ffma | 9.0 | sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize64x32x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel__5x_cublas
not_matmul unknown attention attention-helper | 9.0 | void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)
not_matmul unknown attention attention-helper | 9.0 | void cudnn::fusion::compute_dot_do_o<true>(void const*, void const*, void*, void*, unsigned int)
not_matmul unknown attention attention-helper | 9.0 | void cudnn::fusion::compute_dot_do_o_specialized<false, 64>(void const*, void const*, void*, void*, unsigned int)
not_matmul fp32 gather_scatter torch-native | 9.0 | void native::<unnamed>::compute_grad_weight<float, long>(const T2 *, const T1 *)
not_matmul fp32 layout torch-native | 9.0 | void at::elementwise_kernel<128, 2, void at::gpu_kernel_impl_nocast<at::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)>(int, T3)
not_matmul unknown layout layout-helper | 9.0 | void genericTranspose_kernel
not_matmul fp16 layout layout-helper | 9.0 | void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>
not_matmul fp16 layout layout-helper | 9.0 | void cudnn::engines_precompiled::nhwcToFoldedNhwcKernel<__half>
cuda_core fp32 conv_fprop cudnn-fma | 9.0 | cudnn_infer_ampere_scudnn_128x32_relu_small_nn_v1
cuda_core fp32 conv_wgrad cudnn-fma | 9.0 | cudnn_ampere_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1
not_matmul fp32 conv_fprop conv-transform | 9.0 | void cudnn::winograd_nonfused::winogradForwardOutput4x4<float, float>
tensor_core fp16 conv_fprop xmma-tensor | 9.0 | void xmma_cudnn_infer::gemm::kernel<xmma_cudnn_infer::implicit_gemm::fprop::Kernel_traits<Turing_hmma_fp16_traits>>
cuda_core fp16 conv_fprop cudnn-direct | 9.0 | void implicit_convolve_sgemm<__half, __half, 1024, 5, 5, 3, 3, 3, 1, true, false, true>
cuda_core fp16 depthwise cudnn-depthwise | 9.0 | void conv2d_c1_k1_nhwc_kernel<__half, __half, __half, float, 5, 1, 8, 3, 3, 1>
cuda_core fp16 depthwise cudnn-depthwise | 9.0 | void cudnn::cnn::conv2d_c1_k1_nhwc_kernel_specialized<__half, __half, __half, float, 3, 1, 8, 3>
cuda_core fp16 depthwise cudnn-depthwise | 9.0 | void dgrad2d_c1_k1_nhwc_kernel<__half, float, 5, 3, 2, 3, 2, false, 1>
cuda_core fp32 conv_dgrad cudnn-direct | 9.0 | void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>
cuda_core fp32 conv_wgrad cudnn-direct | 9.0 | void convolveNd_wgrad_engine<float, 3, 128, 5, 5, 3, 3, 3, false>
cuda_core fp32 conv_fprop cudnn-direct | 9.0 | void convolveNd_sgemm<float, 3, 1024, 5, 5, 3, 3, 3, 1>
cuda_core fp16 conv_fprop cudnn-direct | 9.0 | void cudnn::detail::convolveNd_sgemm<__half, __half, 3, 512, 6, 8, 3, 3, 5, 1, false>
not_matmul fp32 gemm splitk-reduction | 9.0 | void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>
not_matmul fp32 gemm blas-helper | 9.0 | void cublasLt::epilogue::impl::globalKernel<8, 32, float, float>
cuda_core unknown gemm gemv | 9.0 | void cublasLt::gemvx::kernel
cuda_core fp32 gemm gemv | 9.0 | void gemvx::kernel<int, int, float, float, float, float, false, true, false, false, 7, false, cublasGemvParamsEx>
cuda_core bf16 gemm gemv | 9.0 | void gemv2N_kernel<int, int, __nv_bfloat16, __nv_bfloat16>
cuda_core bf16 gemm gemv | 9.0 | void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>
cuda_core bf16 gemm gemv | 9.0 | void internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true, false, 6>
not_matmul fp64 gemm blas-helper | 9.0 | void dot_kernel<double>
not_matmul fp8 layout serving-library | 9.0 | void transformer_engine::(anonymous namespace)::cast_transpose_optimized_kernel<true, float, float, __nv_fp8_e4m3>
not_matmul unknown layout tf-layout | 9.0 | void transformer_engine::(anonymous namespace)::transpose_kernel
not_matmul bf16 softmax serving-library | 9.0 | void transformer_engine::scaled_aligned_causal_masked_softmax_warp_forward<__nv_bfloat16>
not_matmul unknown reduce serving-library | 9.0 | void transformer_engine::(anonymous namespace)::dbias_kernel
not_matmul bf16 elementwise serving-library | 9.0 | void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>
not_matmul fp4 layout serving-library | 9.0 | void transformer_engine::nvfp4::quantize_transpose_nvfp4_kernel
not_matmul unknown layout serving-library | 9.0 | void transformer_engine::swizzle_row_scaling_kernel<int4>
not_matmul bf16 norm norm-kernel | 9.0 | void layer_norm::ln_fwd_tuned_kernel<layer_norm::Kernel_traits<__nv_bfloat16>>
not_matmul bf16 elementwise serving-library | 9.0 | void vllm::act_and_mul_kernel<c10::BFloat16, silu>
tensor_core unknown gemm triton-kernel | 9.0 | fused_moe_kernel
tensor_core fp8 gemm triton-kernel | 9.0 | _w8a8_block_fp8_matmul
unknown unknown other no-evidence | 9.0 | matmul_kernel
tensor_core unknown attention triton-kernel | 9.0 | _attn_fwd
tensor_core bf16 gemm triton-matmul | 9.0 | _p_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x64x1
tensor_core int8 gemm xmma-tensor | 8.0 | sm80_xmma_sparse_gemm_i8i8_i8i32_f32_tn_n_tilesize128x128x128_stage3_warpsize2x2x1_sptensor16x8x64_kernel
not_matmul fp16 elementwise nvfuser | 8.0 | nvfuser_pointwise_f0_c1_r0_g0(Tensor<__half, 2, 2>, Tensor<__half, 2, 2>)
not_matmul unknown reduce nvfuser | 8.0 | nvfuser_inner_outer_persistent_f12_c1_r0_g3
tensor_core unknown gemm nvfuser-matmul | 8.0 | nvfuser_matmul_f0_c1_r0_g0
matrix_core unknown attention triton-kernel | 9.4 | bwd_kernel_dk_dv.kd
not_matmul unknown attention triton-attention-helper | 9.4 | bwd_preprocess.kd
not_matmul unknown layout miopen-transpose | 9.4 | batched_transpose_32x32_pack_2x2_ediv_2x2_half.kd
not_matmul unknown elementwise miopen-tensor | 9.4 | SubTensorOpWithScalar1d.kd
not_matmul unknown layout miopen-tensor | 9.4 | SubTensorOpWithSubTensor4d.kd
not_matmul bf16 elementwise serving-library | 9.4 | _ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i
matrix_core fp16 conv_fprop composable-kernel | 9.4 | _ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_36GridwiseGemmMultipleABD_xdl_cshuffleIDF16_EEEEvPT_
matrix_core bf16 gemm composable-kernel | 9.4 | _ZN2ck27kernel_gemm_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_cshuffle_v3IDF16bEEEEvPT_
matrix_core bf16 conv_fprop composable-kernel | 9.4 | _ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_34GridwiseGemmMultipleD_xdl_cshuffleItttftNS_5TupleIJEEEtNS0_12element_wise11PassThroughEEEEEvPT_
matrix_core fp32 conv_fprop composable-kernel | 9.4 | void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleD_xdl_cshuffle<float, float>>()
matrix_core unknown conv_fprop miopen-xdlops | 9.4 | gridwise_convolution_implicit_gemm_v4r4_xdlops_nchw_kcyx_nkhw.kd
unknown unknown other no-evidence | 9.0 | _fwd_grouped_kernel_stage1
unknown unknown other no-evidence | 9.0 | _fwd_kernel_stage2
unknown unknown other no-evidence | 9.0 | chunk_fwd_kernel_o
not_matmul unknown cast quantise-kernel | 9.0 | _per_token_group_quant_8bit_colmajor
not_matmul mixed cast quantise-kernel | 9.0 | void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>
unknown unknown gemm triton-dot | 9.0 | triton_mm
not_matmul unknown elementwise inductor | 9.0 | triton_poi_fused__to_copy_2
not_matmul unknown norm inductor | 9.0 | triton_red_fused_native_layer_norm_0
unknown unknown gemm triton-dot | 9.0 | gemm_fusion_dot_5
not_matmul unknown reduce xla-loop-fusion | 9.0 | input_add_reduce_fusion
not_matmul unknown elementwise xla-loop-fusion | 9.0 | loop_multiply_fusion
# AMD: seen in public traces and issue reports (9.4)
matrix_core bf16 gemm tensile-mfma | 9.4 | Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1
matrix_core fp8 gemm tensile-mfma | 9.4 | Cijk_Alik_Bljk_F8BS_BH_MT128x128_MI16x16x32
matrix_core fp32 gemm tensile-mfma | 9.4 | Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT64x64x16_MI16x16x1
cuda_core fp32 gemm tensile-fma | 9.4 | Cijk_Ailk_Bljk_SB_MT64x64x8_SN
matrix_core unknown attention composable-kernel | 9.4 | _ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernel
matrix_core fp16 conv_fprop composable-kernel | 9.4 | void ck::kernel_grouped_conv_fwd_xdl_cshuffle<ck::half_t>
cuda_core unknown conv_fprop miopen-direct | 9.4 | miopenSp3AsmConv_group_30_2
matrix_core bf16 attention fmha | 9.4 | fmha_fwd_hd128_bf16_causal
matrix_core bf16 attention aiter-asm | 9.4 | aiter::fmha_bwd_hd128_bf16_a32
matrix_core unknown attention paged-attention | 9.4 | void vllm::paged_attention_ll4mi_QKV_mfma16_kernel
# AMD: names of ROCm/aiter's code objects, ROCm/hipBLASLt's kernels and composable kernel's sources (9.4)
matrix_core bf16 gemm aiter-asm | 9.4 | _ZN5aiter37bf16gemm_fp32bf16_tn_32x64_pf3_splitkE
matrix_core int8 gemm aiter-asm | 9.4 | _ZN5aiter42I8gemm_bf16_perTokenI8_BpreShuffle_32x128E
matrix_core fp4 gemm aiter-asm | 9.4 | _ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256E
matrix_core fp8 gemm aiter-asm | 9.4 | _ZN5aiter44fmoe_bf16_blockscaleFp8_g1u1_silu_1tg_32x256E
matrix_core int8 gemm aiter-asm | 9.4 | _ZN5aiter49fmoe_stage1_bf16_pertokenInt8_g1u1_32x128_3tg_pf3E
matrix_core fp8 gemm aiter-asm | 9.4 | fmoe_fp8_g1u1_subGU_128_gelu
matrix_core fp8 attention aiter-asm | 9.4 | _ZN5aiter33mla_a8w8_qh16_qseqlen1_gqaratio16E
matrix_core unknown attention aiter-asm | 9.4 | _ZN5aiter39mla_a16w16_qh16_m32x1_n16x1_coex0_mask1E
matrix_core mixed attention aiter-asm | 9.4 | _ZN5aiter31pa_bf16_pertokenFp8_gqa8_2tg_4wE
matrix_core bf16 attention aiter-asm | 9.4 | _ZN5aiter26fmha_fwd_hd128_bf16_causalE
not_matmul fp16 attention aiter-helper | 9.4 | _ZN5aiter23fmha_bwd_hd128_odo_fp16E
not_matmul bf16 attention aiter-helper | 9.4 | _ZN5aiter26pa_p16_d128_reduce_ps_bf16E
not_matmul unknown softmax serving-library | 9.4 | _ZN5aiter19topksoftmax_4x128x6E
not_matmul unknown gather_scatter serving-library | 9.4 | void aiter::opus_moe_sorting_entry<256>(int)
not_matmul unknown elementwise serving-library | 9.4 | void aiter::kn_entry_2c_sbhd_cached_inplace<true>(int)
matrix_core bf16 gemm tensile-mfma | 9.4 | Custom_Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT64x16x64_MI16x16x1_SN_LDSB0
matrix_core fp16 gemm tensile-mfma | 9.4 | Custom_Cijk_Ailk_Bljk_F8H_HHS_BH_MT128x16x128_MI16x16x1_Freesize_10_gfx942
matrix_core tf32 gemm tensile-mfma | 9.4 | Cijk_Alik_Bljk_S_MX_B_UserArgs_MT128x128x32_MI16x16x1_CMS_SN_LDSB0
unknown fp16 gemm tensile-unstated | 9.4 | Custom_Cijk_Ailk_Bljk_HSS_BH_Bias_GG_AS_SAV_UserArgs_shortname0_gfx942
cuda_core fp32 gemm tensile-fma | 9.4 | Cijk_Ailk_Bljk_SB_MT064x128x08_GRVW04_K1_PGR0_PLR0_TT04_08_VW04_WG16_16_01_WGM04
not_matmul unknown gemm tensile-reduction | 9.4 | Cijk_SS_BiasS_HAS_ScaleAlphaVec_PostGSU16_VW1
matrix_core unknown gemm composable-kernel | 9.4 | void ck_tile::kentry<1, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner<int>>>(int)
not_matmul unknown gather_scatter composable-kernel | 9.4 | void ck_tile::kentry<2, ck_tile::MoeSortingMultiPhaseKernel_P23<ck_tile::MoeSortingProblemMp<int>>>(int)
not_matmul unknown norm composable-kernel | 9.4 | void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::Rmsnorm2dFwdPipelineOnePass<int>>>(int)
not_matmul bf16 attention ck-helper | 9.4 | void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaBwdOGradDotOKernel<ck_tile::BlockFmhaBwdOGradDotO<std::bfloat16_t>>>()
matrix_core fp8 gemm composable-kernel | 9.4 | void ck::kernel_moe_gemm<ck::GridwiseMoeGemmBlockScale<ck::f8_fnuz_t, ck::f8_fnuz_t>>(int)
cuda_core fp32 gemm composable-kernel | 9.4 | void ck::kernel_gemm_dl_v1r3<ck::GridwiseGemmDl<float>>(int)
matrix_core fp16 gemm composable-kernel | 9.4 | void ck::kernel_gemm_reduce_xdl_cshuffle_v1<ck::half_t>(int)
not_matmul fp16 reduce composable-kernel | 9.4 | void ck::kernel_reduce_threadwise<ck::half_t>(int)
matrix_core fp8 gemm skinny-gemm | 9.4 | void wvSplitKQ_hf_<__hip_bfloat16, c10::Float8_e4m3fnuz, 64, 1, 16, 16, 2, 1>(int, int)
cuda_core fp16 gemm skinny-gemm | 9.4 | void wvSplitK_hf_sml_<__half, 64, 1, 16, 8, 2, 1>(int, int)
unknown bf16 gemm skinny-gemm-open | 9.4 | void wvSplitK_hf_sml_<__hip_bfloat16, 64, 1, 16, 8, 2, 1>(int, int)
# MAGMA's products (8.0)
tensor_core fp16 gemm magma-wmma | 8.0 | void hgemm_template_batched_nn_kernel<__half, 32, 4, 64, 64, 32, 16, 16, 16>(int, int, int)
cuda_core fp32 gemm magma-gemm | 8.0 | void gemm_template_batched_tn_kernel<float, 16, 16, 96, 96, 16, 0, 0>(int, int, int)
# blackwell: seen in public traces and issue reports (10.0)
tensor_core bf16 gemm nvjet | 10.0 | nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT
tensor_core bf16 gemm nvjet | 10.0 | nvjet_sm100_tst_32x64_64x16_4x1_v_bz_splitK_bias_TNN
tensor_core mixed gemm deep-gemm | 10.0 | void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 128u, 128u, 0u, cutlass::float_e4m3_t, cutlass::float_e4m3_t, cutlass::bfloat16_t>
not_matmul unknown comm collective | 10.0 | void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<__nv_bfloat16>)
not_matmul unknown comm collective | 10.0 | void (anonymous namespace)::all_reduce_two_shot_kernel<__nv_bfloat16, 8u, true>(host::distributed::AllReduceData const*)
tensor_core bf16 gemm cutlass-gmma | 10.0 | void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm10<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int>>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm100ArrayTmaUmmaWarpSpecialized<(int)3, (int)8, (int)2, cute::tuple<cute::C<(int)2>, cute::C<(int)1>, cute::C<(int)1>>>, cute::tuple<cute::C<(int)128>, cute::C<(int)256>, cute::C<(int)64>>, cutlass::bfloat16_t, cute::tuple<long, cute::C<(int)1>, cute::C<(int)0>> *, cutlass::bfloat16_t, cute::tuple<cute::C<(int)1>, long, cute::C<(int)0>> *, cute::TiledMMA<cute::MMA_Atom<cute::SM100_MMA_F16BF16_SS<cutlass::bfloat16_t, cutlass::bfloat16_t, float, (int)128, (int)256
tensor_core fp8 gemm deep-gemm | 10.0 | void deep_gemm::sm100_fp8_mqa_logits<32u>
not_matmul unknown layout deep-gemm-helper | 10.0 | void deep_gemm::smxx_clean_logits<256u, 8192u, 8u>
tensor_core unknown attention cudnn-sdpa | 10.0 | cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_31_128x128x128_4x1x1_cga1x1x1_kernel0_0
tensor_core unknown attention cudnn-sdpa | 10.0 | cudnn_generated_fort_native_sdpa_sm100_flash_bprop_f16_knob_7
tensor_core unknown attention flash-attention | 10.0 | kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor0000o1101112_0
tensor_core fp8 attention fmha | 10.0 | fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvCausalP64VarSeqQ128Kv128PersistentContext
tensor_core bf16 attention fmha | 10.0 | fmhaSm100aKernel_QkvBfloat16OBfloat16HQk576HV512HVPerCta256PagedKvDenseP32MultiCtasKvVarSeqQ16Kv128StaticKeepsAbForGen
tensor_core fp8 gemm trtllm-gemm | 10.0 | bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s5_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_transOut_schedS_bN_ldgsts_ldgstsSf_rgTma_clmp_swiGlu_dynBatch_sm100a
tensor_core fp4 gemm trtllm-gemm | 10.0 | gemm_Bfloat16_E2m1E2m1_Fp32_t128x256x256_s4_et128x64_m256x256x64_cga2x1x1_16dp256b_TN_transOut_noShflA_dsFp8_schedP_sm100a
tensor_core bf16 attention fmha | 10.0 | void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaFwdKernelTmaWarpspecialized<cute::tuple<int>, cutlass::bfloat16_t>>
unknown bf16 gemm xmma-unstated | 10.0 | sm100_xmma_gemm_bf16bf16_bf16f32_f32
tensor_core bf16 gemm cutlass3-tensorop | 10.0 | cutlass3x_sm100_tensorop_s128x256x16gemm_bf16_bf16_f32_bf16_bf16_256x256x64_0_tnt_align8_2sm_bias_bf16_relu
tensor_core fp16 gemm cutlass3-tensorop | 10.0 | cutlass3x_sm100_tensorop_gemm_f16_f16_f32_void_f16_128x128x64_2x1x1
# blackwell ultra: seen in public traces and issue reports (10.3)
tensor_core bf16 gemm nvjet | 10.3 | nvjet_sm103_tss_128x256_64x6_2x1_2cta_v_bz_NNT
# blackwell, consumer: seen in public traces and issue reports (12.0)
tensor_core bf16 gemm nvjet | 12.0 | nvjet_sm120_tst_mma_128x176x64
tensor_core bf16 gemm cutlass-tensorop | 12.0 | cutlass_80_tensorop_s16816gemm_bf16_128x256_32x3_tn_align8
tensor_core bf16 gemm cutlass-tensorop | 12.0 | void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)
tensor_core fp4 gemm cutlass3-tensorop | 12.0 | cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16_bf16_128x128x128_1x1x1_0_tnn_align32_warpspecialized_pingpong
# blackwell, small: seen in public traces and issue reports (12.1)
tensor_core bf16 gemm nvjet | 12.1 | nvjet_sm121_tst_mma_128x128x64_3_64x32x64_tmaAB_splitK_TNNN
# hopper: seen in public traces and issue reports (9.0)
tensor_core fp8 gemm nvjet | 9.0 | nvjet_qqtst_112x128_128x7_2x1_v_bz_coopA_algo2_TNN
tensor_core fp8 gemm nvjet | 9.0 | nvjet_qqhsh_128x128_128x5_2x1_v_bz_TNT
not_matmul unknown norm norm-kernel | 9.0 | _add_rms_norm_kernel
not_matmul unknown reduce words | 9.0 | absmax_kernel
not_matmul unknown elementwise words | 9.0 | silu_inplace
not_matmul fp8 cast words | 9.0 | quantize_fp8_kernel_generic
not_matmul unknown layout words | 9.0 | multi_padding_kernel
not_matmul unknown cast words | 9.0 | block_scaled_1d_cast_transpose_kernel
# blackwell: seen in public traces and issue reports (10.0)
tensor_core fp4 gemm nvjet | 10.0 | nvjet_sm100_oosss_128x256_256x5_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT
tensor_core fp4 gemm nvjet | 10.0 | nvjet_sm100_oohsh_128x256_256x5_2x2_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT
tensor_core fp8 gemm nvjet | 10.0 | nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT
tensor_core fp4 gemm cutlass3-tensorop | 10.0 | cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_0_tnn_align32_o_vs16_2sm_bias_f16_relu
not_matmul unknown comm collective | 10.0 | userbuffers_fp16_sum_inplace_gpu_mc_rmsnorm
tensor_core unknown gemm cute-dsl-blackwell | 10.0 | kernel_cutlass_kernel_bs_gemm_exampleSm100BlockScaledPersistentDenseGemmKernel_object
"""


def _rows() -> list[tuple[str, str, str]]:
    lines = [line for line in CASES.strip().splitlines() if line and not line.startswith("#")]
    rows = [tuple(line.split(" | ", 2)) for line in lines]
    return [(expected, card, name) for expected, card, name in rows]


@pytest.mark.parametrize(("expected", "card", "name"), _rows())
def test_a_name_gets_its_verdict(expected: str, card: str, name: str) -> None:
    capability = None if card == "-" else tuple(int(part) for part in card.split("."))
    vendor = {"9.4": "amd", "-": "unknown"}.get(card, "nvidia")
    verdict = classify(name, capability, vendor)
    said = f"{verdict.placement} {verdict.precision} {verdict.family} {verdict.reason.code}"
    assert said == expected


def test_the_table_covers_the_generations() -> None:
    cards = {card for _, card, _ in _rows()}
    assert len(_rows()) >= 200
    assert {"6.1", "7.0", "7.5", "8.0", "8.9", "9.0", "9.4", "10.0", "12.0"} <= cards
